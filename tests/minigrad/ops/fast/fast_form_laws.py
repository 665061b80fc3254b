"""Laws of minigrad/ops/fast/exponential.py, normal_distribution.py and minigrad/faster.py: the fast forms
of ops are their readable ones, for drawn shapes, both dtypes, and edges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import signature
from typing import Any
from unittest.mock import patch

import numpy as np

from minigrad import Tensor, loops
from minigrad.faster import faster
from minigrad.ops.fast.exponential import exp, expm1, log1p
from minigrad.ops.fast.normal_distribution import normal
from minigrad.testing import DEVICE, on_device
from tests.minigrad.ops.extremes import near, value_and_gradients

Rows = Callable[[np.ndarray, np.ndarray, int], np.ndarray]


def sums_rows_as_add_at(sum_by_row: Rows, g: np.ndarray, rows: np.ndarray, count: int) -> None:
    """Bit by bit for whole numbers, whose sums are exact."""
    expected = np.zeros((count, *g.shape[1:]), g.dtype)
    np.add.at(expected, rows, g)
    d = sum_by_row(g, rows, count)
    assert d.dtype == expected.dtype and d.shape == expected.shape
    assert np.array_equal(d, expected), f"sums of rows {rows.tolist()} differ from add.at's"


def is_the_power(power: Callable[[np.ndarray, Any], np.ndarray], x: np.ndarray, y: float) -> None:
    """Within a rounding for each factor, and infinite, NaN or 0 where the power is."""
    with np.errstate(all="ignore"):
        value, expected = power(x, y), np.power(x.astype(np.longdouble), y).astype(x.dtype)
    assert value.dtype == x.dtype
    slack = 20 * np.finfo(x.dtype).eps * abs(expected) + 4 * np.finfo(x.dtype).smallest_subnormal
    with np.errstate(invalid="ignore"):  # infinity minus infinity
        near = (value == expected) | (np.isnan(value) & np.isnan(expected)) | (abs(value - expected) <= slack)
    assert near.all(), f"{x[~near][0]!r} ** {y} is {value[~near][0]!r}, not {expected[~near][0]!r}"


def adds_in_short_chains(sums: Callable[[np.ndarray], np.ndarray], axis: int, x: np.ndarray) -> None:
    """The sums along ``axis``, by chains of 64 additions and a tree above them.

    Each of 64 + log2 n additions rounds at most by half an eps of what the absolute terms add up to.
    """
    terms, n = x.astype(np.longdouble), x.shape[axis]
    value, absolute = sums(x), abs(terms).sum(axis=axis)
    assert value.dtype == x.dtype and value.shape == absolute.shape
    slack = (64 + np.log2(max(n, 1))) / 2 * np.finfo(x.dtype).eps
    error = abs(value - terms.sum(axis=axis))
    assert (error <= slack * absolute).all(), (
        f"a sum of {n} is off by {(error / absolute).max() / np.finfo(x.dtype).eps:.0f} eps"
    )


def sums_over_axes(axis_sums: Callable[..., np.ndarray], x: np.ndarray, axes: tuple[int, ...]) -> None:
    """Bit by bit for whole numbers, in any memory order."""
    expected, value = x.sum(axis=axes), axis_sums(x, axes)
    assert value.dtype == x.dtype and value.shape == expected.shape, f"{value.shape}, not {expected.shape}"
    assert np.array_equal(value, expected), f"sums over {axes} of {x.shape} differ from NumPy's"


def sums_up_to_each(
    running_sums: Callable[[np.ndarray, int, bool], np.ndarray],
    x: np.ndarray,
    axis: int,
    backwards: bool,
    chain: int,
) -> None:
    """By chains of at most ``chain`` additions, each of which rounds by half an eps of the absolute sum.

    Infinity and NaN are in the sums that have them, and in no other.
    """
    wide = np.flip(x, axis) if backwards else x
    with np.errstate(invalid="ignore"):
        value, exact = running_sums(x, axis, backwards), np.cumsum(wide.astype(np.longdouble), axis)
    absolute = np.cumsum(abs(wide).astype(np.longdouble), axis)
    exact, absolute = (np.flip(a, axis) if backwards else a for a in (exact, absolute))
    assert value.dtype == x.dtype and value.shape == x.shape
    finite = np.isfinite(exact)
    assert np.array_equal(value[~finite], exact[~finite], equal_nan=True), "other sums are infinite or NaN"
    error = abs(value[finite] - exact[finite]) / np.finfo(x.dtype).eps
    assert (error <= chain / 2 * absolute[finite]).all(), f"sums up to each are off by {error.max():.0f} eps"


def is_the_product(product: Callable[..., np.ndarray], a: np.ndarray, b: np.ndarray) -> None:
    """Bit by bit for whole numbers, returned or written."""
    expected, out = (a[:, :, None] * b[None]).sum(axis=1), np.empty((len(a), b.shape[1]), a.dtype)
    for what, value in (("returned", product(a, b)), ("written", product(a, b, out))):
        assert value.dtype == a.dtype and np.array_equal(value, expected), f"another product is {what}"
    assert np.array_equal(out, expected), "nothing is written"


def is_one_stream(sample: Callable[..., np.ndarray], shape: tuple[int, ...], dtype: type) -> None:
    """The numbers of one call, rounded to the dtype, and not one drawn too much."""
    one, other = np.random.default_rng(3), np.random.default_rng(3)
    expected = one.normal(size=shape).astype(dtype)
    assert np.array_equal(sample(lambda count: other.normal(size=count), shape, dtype), expected), "others"
    assert one.random() == other.random(), "the next number of the stream differs"


def is_leaky_relu(leaky_relu: Callable[..., Any], x: np.ndarray, g: np.ndarray, slope: float) -> None:
    """Value and gradient, by the choice between 1 and the slope."""
    value, (d,) = value_and_gradients(lambda x: leaky_relu(x, slope=slope), x, seed=g)
    factor = np.where(x > 0, 1, slope).astype(x.dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        assert np.array_equal(value, x * factor, equal_nan=True), "the value differs"
    assert np.array_equal(d, g * factor, equal_nan=True), "the gradient differs"


def is_relu(
    positive_part: Callable[..., Any], gradient: Callable[..., Any], x: np.ndarray, g: np.ndarray
) -> None:
    """Value and gradient, which is 0 at both zeros; NaN passes both ways."""
    y = positive_part(x)
    assert np.array_equal(y, np.where(x <= 0, 0, x), equal_nan=True), "the value differs"
    assert not np.signbit(y[y == 0]).any(), f"-0 for {x[y == 0]}"
    d = gradient(g, y)
    assert d.dtype == g.dtype and np.array_equal(d, np.where(x <= 0, 0, g), equal_nan=True), (
        f"{d} for {g} at {x}"
    )


def is_the_softmax(softmax: Callable[..., Any], x: np.ndarray) -> None:
    """Rows are as exact as the distance from the largest logit allows; below 1e-30 no digit counts."""
    shifted = x.astype(np.longdouble) - x.max(axis=1, keepdims=True)
    exact = np.exp(shifted) / np.exp(shifted).sum(axis=1, keepdims=True)
    value = softmax(on_device(x)).numpy()
    tolerance = 4 * np.finfo(x.dtype).eps * (4 + np.where(exact > 1e-30, -shifted, 0)) * exact + 1e-30
    assert value.dtype == x.dtype and (abs(value - exact) <= tolerance).all(), f"{value} for {exact}"


@contextmanager
def readable_forms() -> Iterator[None]:
    """Inside, the readable form of each op computes, also where faster ones would."""
    readable = lambda op, *arguments, **settings: op.readable(*arguments, **settings)  # noqa: E731
    with patch.object(loops, "available", return_value=False), patch.object(faster, "__call__", readable):
        yield


def has_the_same_bits_before_numba_is_imported(op: Callable[..., Any], *inputs: np.ndarray) -> None:
    """What has imported Numba, an evaluation perhaps, changes no bit: a resumed run may not have met it."""
    y, results = op(*map(Tensor, map(on_device, inputs))), []
    g = np.random.default_rng(0).normal(size=y.shape).astype(y.dtype)
    for is_imported in (False, True):
        with patch.object(loops, "are_imported", return_value=is_imported):
            value, gradients = value_and_gradients(op, *inputs, seed=g)
            results.append([value, *gradients])
    same = [np.array_equal(a, b, equal_nan=a.dtype.kind in "fc") for a, b in zip(*results, strict=True)]
    assert all(same), f"other bits once Numba is imported: {same}"


def an_unknown_setting_is_refused_by_the_ops_name(op: Callable[..., Any], name: str) -> None:
    """Whichever of its forms is asked first, with as many arrays as it needs."""
    parameters = signature(op).parameters.values()
    arrays = [np.ones((1, 2, 1, 3)) for p in parameters if p.default is p.empty and p.kind != p.KEYWORD_ONLY]
    try:
        op(*arrays, unknown=1)
    except TypeError as error:
        assert str(error).startswith(f"{name}()"), f"{name} says: {error}"
    else:
        raise AssertionError(f"{name} takes any setting")


def in_both_forms(law: Callable[..., None], *arguments: Any, **settings: Any) -> None:
    """The law holds where the faster forms compute, and where the readable ones do."""
    law(*arguments, **settings)
    with readable_forms():
        law(*arguments, **settings)


def loops_meet_no_gaps(of_elements: Callable[..., np.ndarray], *arrays: np.ndarray) -> None:
    """``of_elements`` gives a loop vectors without gaps, whatever the memory order of the arrays.

    Others have another type, for which the loop would be compiled again, and would be slower.
    """

    def loop(*vectors: np.ndarray) -> None:
        assert all(x.ndim == 1 and x.flags.c_contiguous for x in vectors), "a loop meets an array with gaps"
        vectors[-1][...] = sum(vectors[:-1])

    assert np.array_equal(of_elements(loop, *arrays), sum(arrays))


def loops_are_the_readable_form(
    op: Callable[..., Any], g: np.ndarray, *inputs: np.ndarray, roundings: Any = None
) -> None:
    """Value and gradients of ``op`` as loops compute them, as without Numba, and on the readable shelf alone.

    Each element differs by ``roundings`` as ``are_the_readable_form`` says.
    """
    with patch.object(loops, "can_take", wraps=loops.can_take) as fit:
        are_the_readable_form(op, *inputs, g=g, roundings=roundings)
    assert fit.called or DEVICE != "numpy", "nothing asks for loops"
    with patch.object(loops, "available", return_value=False):
        are_the_readable_form(op, *inputs, g=g, roundings=roundings)


def are_the_readable_form(
    op: Callable[..., Any], *inputs: np.ndarray, g: np.ndarray, roundings: Any = None
) -> None:
    """Value and gradients of ``op`` as its forms compute them, and on the readable shelf alone.

    Each element differs by ``roundings`` eps of itself and of its g, by 0 where it must have the same bits.
    By default they are sums of some hundreds of elements, in another order, which differ by less than 1000
    eps of the largest of the results and of g, from which small gradients are what is left of large terms.
    On a GPU kernels are compared so, whose functions round in another way than those of arrays.
    """
    by_forms = value_and_gradients(op, *inputs, seed=g)
    with readable_forms():
        readable = value_and_gradients(op, *inputs, seed=g)
    are_alike(by_forms, readable, g, roundings if DEVICE == "numpy" else None)


def are_alike(faster_results: Any, readable_results: Any, g: np.ndarray, roundings: Any) -> None:
    """The value and the gradients of two forms differ by so many ``roundings``, as above."""
    (value, gradients), (readable, readable_gradients) = faster_results, readable_results
    names = ["the value", *(f"gradient {i}" for i in range(len(gradients)))]
    for name, a, b in zip(names, [value, *gradients], [readable, *readable_gradients], strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape, f"{name}: {a.dtype} {a.shape}, {b.dtype} {b.shape}"
        info, finite = np.finfo(b.dtype), np.isfinite(b)
        if roundings is None:
            bound = 1000 * info.eps * np.abs(b).max(initial=np.abs(g).max(initial=0), where=finite)
        else:
            of_g = np.abs(g) if name != "the value" and g.shape == b.shape else 0
            bound = roundings * (info.eps * (np.where(finite, np.abs(b), 0) + of_g) + info.smallest_normal)
        near(a, b, bound, name)


def is_exact_in_loops(loop: Callable[..., None], x: np.ndarray, exact: np.ndarray, roundings: Any) -> None:
    """The function of x that ``loop`` writes, but for so many eps of itself."""
    y, info = np.empty_like(x), np.finfo(x.dtype)
    loop(x, y)
    with np.errstate(all="ignore"):
        exact = np.where(np.abs(exact) > info.max, np.inf * exact, exact)
        bound = roundings * info.eps * np.abs(exact) + info.smallest_subnormal
    near(y, exact, bound, loop.__name__)


@loops.compiled
def write_exp(x: np.ndarray, y: np.ndarray) -> None:
    for i in range(len(x)):
        y[i] = exp(x[i])


@loops.compiled
def write_expm1(x: np.ndarray, y: np.ndarray) -> None:
    for i in range(len(x)):
        y[i] = expm1(x[i])


@loops.compiled
def write_log1p(x: np.ndarray, y: np.ndarray) -> None:
    for i in range(len(x)):
        y[i] = log1p(x[i])


@loops.compiled
def write_normal_distribution(x: np.ndarray, y: np.ndarray) -> None:
    for i in range(len(x)):
        y[i] = normal(x[i])[0]
