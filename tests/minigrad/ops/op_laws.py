"""Laws of minigrad/op.py, pullback.py and minigrad/ops/: every op keeps the contract of pullbacks, dtypes
and memory layouts, in both forms of ``op``.

A law takes the op and its inputs, and returns nothing or raises AssertionError. The seeded bugs use the same
laws. That gradients are right is a law of ``minigrad.testing``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from minigrad import Parameter, Tape, Tensor, ops
from minigrad.device import Array, array_module, to_host
from minigrad.memory import retained_arrays
from minigrad.pullback import OpResult
from minigrad.tape import undo_broadcast
from minigrad.testing import Op, compare_slopes, is_float, on_device, shares_memory
from tests.double import ON_CUDA


def every_element_matches_difference(f: Op, *inputs: Array) -> None:
    """``gradient_matches_difference`` for one element of the inputs at a time: says which one is wrong."""
    directions = []
    for k, x in enumerate(inputs):
        for place in np.ndindex(x.shape) if is_float(x) else ():
            unit = np.zeros(x.shape)
            unit[place] = 1
            directions.append([on_device(unit) if i == k else None for i in range(len(inputs))])
    compare_slopes(f, inputs, directions)


def pullbacks_keep_the_contract(f: Op, *inputs: Array) -> None:
    """Pullbacks return g, a view of g or new memory; they write to no argument and keep no state.

    Called again, with another g and in any order, a pullback returns the same as when it is called alone.
    """
    before = [to_host(x).copy() for x in inputs]
    count = len(pullbacks_of(f, inputs)[1])
    value, entry = pullbacks_of(f, inputs)
    gs = [on_device(np.random.default_rng(s).normal(size=value.shape).astype(value.dtype)) for s in (1, 2)]
    copies = [to_host(g).copy() for g in gs]
    alone = [[to_host(pullbacks_of(f, inputs)[1][k][2](g)).copy() for k in range(count)] for g in gs]
    forward = list(range(count))
    for which, order in ((0, forward), (1, forward[::-1]), (1, forward), (0, forward[::-1])):
        g = gs[which]
        for k in order:
            _, shape, pullback = entry[k]
            d = pullback(g)
            assert undo_broadcast(d, shape).shape == shape, f"pullback {k} gives {d.shape} for input {shape}"
            assert is_the_same(d, alone[which][k]), f"pullback {k} depends on the calls before it"
            if not shares_memory(d, g):
                retained = [a for a in retained_arrays([p for _, _, p in entry]) if not shares_memory(a, g)]
                assert not any(shares_memory(d, a) for a in retained), (
                    f"pullback {k} gives away what it holds"
                )
                assert not any(shares_memory(d, x) for x in inputs), f"pullback {k} gives away an input"
    assert all(np.array_equal(to_host(g), k) for g, k in zip(gs, copies, strict=True)), "g was written to"
    assert all(np.array_equal(to_host(x), b) for x, b in zip(inputs, before, strict=True)), (
        "an input was written to"
    )


def is_the_same(x: Array, before: np.ndarray) -> bool:
    """Bit by bit; with CUDA sums of elements that are added atomically come in any order."""
    if ON_CUDA:
        eps = np.finfo(before.dtype).eps
        return np.allclose(to_host(x), before, 16 * eps, 16 * eps, equal_nan=True)
    return np.array_equal(to_host(x), before, equal_nan=True)


def dtype_is_kept(f: Op, *inputs: Array) -> None:
    """From float32 inputs come float32 values, pulled-back arrays and gradients."""
    inputs = tuple(x.astype(np.float32) if is_float(x) else x for x in inputs)
    value, entry = pullbacks_of(f, inputs)
    assert isinstance(value.data, type(on_device(0.0))), f"the value is a {type(value.data).__name__}"
    assert value.dtype == np.float32, f"the value is {value.dtype}"
    for k, (_, _, pullback) in enumerate(entry):
        d = pullback(on_device(np.ones(value.shape, np.float32)))
        # NumPy 1 computes numbers and 0-d arrays in float64; they widen no array, and a leaf narrows them.
        assert d.dtype == np.float32 or (d.ndim == 0 and np.__version__ < "2"), f"gradient {k} is {d.dtype}"
    with Tape() as tape:
        leaves = [Tensor(x, requires_grad=is_float(x)) for x in inputs]
        y = f(*leaves)
    tape.backward(y, on_device(np.ones(y.shape)))
    assert all(x.grad.dtype == np.float32 for x in leaves if x.grad is not None)


def astype_is_numpys(astype: Op, x: np.ndarray, dtype: Any) -> None:
    """NumPy's value, in 0-d, too; between fractions the gradient comes back in the dtype of x."""
    leaf, expected = Tensor(on_device(x), requires_grad=is_float(x)), x.astype(dtype)
    with Tape() as tape:
        y = astype(leaf, dtype=dtype)
    assert y.dtype == expected.dtype, f"{x.dtype} {x.shape} as {expected.dtype} is {y.dtype}"
    assert np.array_equal(to_host(y.data), expected), f"{to_host(y.data)} is not {expected}"
    if is_float(x) and is_float(expected):
        tape.backward(y, on_device(np.ones(y.shape, y.dtype)))
        grad = to_host(leaf.grad)
        assert grad.dtype == x.dtype, f"the gradient of {x.dtype} {x.shape} is {grad.dtype}"
        assert np.array_equal(grad, np.ones_like(x)), f"the gradient is {grad}"


def channels_last_is_kept(f: Op, *inputs: Array) -> None:
    """Channels-last images in, channels-last images out, forward and backward: mixed layouts cost tenfold."""
    inputs = tuple(channels_last(x) if x.ndim == 4 and i == 0 else x for i, x in enumerate(inputs))
    value, entry = pullbacks_of(f, inputs)
    assert is_channels_last(value.data), f"the value has strides {value.data.strides} for {value.shape}"
    d = entry[0][2](channels_last(on_device(np.ones(value.shape))))
    assert is_channels_last(d), f"the gradient has strides {d.strides} for {d.shape}"


def lifts_agree(lifts: Sequence[Callable[..., Op]], function: Callable[..., OpResult], *inputs: Any) -> None:
    """``lift_two`` is ``lift`` written out: the same value, the same entries, the same gradients."""
    runs = []
    for lift in lifts:
        (value, entry), gradients = pullbacks_of(lift(function), inputs), []
        for index, shape, pullback in entry:
            gradients.append((index, shape, to_host(pullback(on_device(np.ones(value.shape)))).tolist()))
        runs.append((type(value.data), value.dtype, value.shape, value.numpy().tolist(), gradients))
    assert all(run == runs[0] for run in runs), f"the lifts differ: {runs}"


def pullbacks_of(f: Op, inputs: Sequence[Any]) -> tuple[Tensor, list[tuple[int, tuple[int, ...], Any]]]:
    """The value of ``f`` and the entry it left on a tape: (index, shape, pullback) per float input."""
    with Tape() as tape:
        leaves = [
            Tensor(on_device(x), requires_grad=is_float(x)) if hasattr(x, "dtype") else x for x in inputs
        ]
        y = f(*leaves)
    return y, tape.entries[-1]


def channels_last(x: Array) -> Array:
    return array_module(x).ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)


def is_channels_last(x: Array) -> bool:
    """Whether memory runs through channels first, then columns, rows and images; gaps do not matter."""
    strides = [x.strides[i] for i in (0, 2, 3, 1) if x.shape[i] > 1]
    return strides == sorted(strides, reverse=True)


def integers_are_floats(f: Op, *inputs: np.ndarray, dtype: Any) -> None:
    """The value for integers or booleans is that for the same numbers in float64."""
    numbers = [on_device(x.astype(dtype)) for x in inputs]
    value = f(*numbers)
    expected = f(*[x.astype(np.float64) for x in numbers])
    assert value.dtype == np.float64, f"the value of {np.dtype(dtype)} is {value.dtype}"
    np.testing.assert_allclose(to_host(value.data), to_host(expected.data), rtol=1e-12, err_msg=f"of {dtype}")


def half_precision_loses_only_its_own_digits(f: Op, *inputs: np.ndarray, value: Any = np.float16) -> None:
    """Value and gradients of float16 are those of float64, but for 4 roundings of the largest element.

    The ``value`` of a loss is float32.
    """
    results = []
    for dtype in (np.float16, np.float64):
        halves = [x.astype(np.float16).astype(dtype) if is_float(x) else x for x in inputs]
        leaves = [Tensor(on_device(x), requires_grad=is_float(x)) for x in halves]
        with Tape() as tape:
            y = f(*leaves)
        seed = np.cos(np.arange(y.size)).reshape(y.shape)  # of a sum normalizations have no gradient
        tape.backward(y, on_device(seed.astype(np.float16).astype(dtype)))
        results.append([y.data, *(x.grad for x in leaves if x.grad is not None)])
    assert results[0][0].dtype == value, f"the value is {results[0][0].dtype}"
    for half, exact in zip(*results, strict=True):
        assert half.dtype == np.float16 or half is results[0][0], f"a gradient is {half.dtype}"
        exact = to_host(exact)
        bound = 4 * np.finfo(np.float16).eps * np.abs(exact).max(initial=1e-3)
        error = np.abs(to_host(half).astype(np.float64) - exact).max(initial=0)
        assert error <= bound, f"{to_host(half)} in half precision, {exact} in double"


LAYERS = {
    "linear": (ops.linear, (3, 4), (5, 4), (5,)),
    "conv2d": (ops.conv2d, (2, 3, 6, 6), (4, 3, 3, 3), (4,)),
    "conv1d": (ops.conv1d, (2, 3, 6), (4, 3, 3), (4,)),
    "conv_transpose2d": (ops.conv_transpose2d, (2, 3, 4, 4), (3, 4, 3, 3), (4,)),
    "batch_norm": (ops.batch_norm, (5, 4), (4,), (4,)),
    "layer_norm": (ops.layer_norm, (5, 4), (4,), (4,)),
    "rms_norm": (ops.rms_norm, (5, 4), (4,)),
    "group_norm": (partial(ops.group_norm, groups=2), (5, 4, 3), (4,), (4,)),
    "instance_norm": (ops.instance_norm, (5, 4, 3), (4,), (4,)),
}
"""Layers, and the shapes of samples and parameters."""


def has_the_dtype_of_a_layer(f: Op, dtype: Any, x: np.ndarray, *parameters: np.ndarray) -> None:
    """The value and all gradients, whatever the dtype of x; the numbers are those of x in this dtype."""
    runs = []
    for samples in (x, x.astype(dtype)):
        leaves = [Tensor(on_device(a), requires_grad=is_float(a)) for a in (samples, *parameters)]
        with Tape() as tape:
            y = f(*leaves)
        assert y.dtype == dtype, f"x of {x.dtype} makes a value of {y.dtype}"
        for leaf, (_, _, pullback) in zip(
            (x for x in leaves if x.requires_grad), tape.entries[-1], strict=True
        ):
            d = pullback(on_device(np.ones(y.shape, y.dtype)))
            assert d.dtype in (dtype, leaf.dtype), f"x of {x.dtype} makes a gradient of {d.dtype}"
            assert d.dtype.itemsize <= dtype.itemsize, f"x of {x.dtype} makes a gradient of {d.dtype}"
        runs.append(to_host(y.data))
    assert np.array_equal(*runs), "the numbers are not those of the layer's dtype"


def gradients(f, *inputs, seed=1.0):
    leaves = [Parameter(on_device(np.asarray(x, float))) for x in inputs]
    with Tape() as tape:
        y = f(*leaves)
    tape.backward(y, seed)
    grads = [leaf.grad.tolist() for leaf in leaves if leaf.grad is not None]
    return grads[0] if len(grads) == 1 else grads
