"""Laws that hold for every op and optimizer, as functions that take the object under test.

The library's tests, students' submissions and the seeded bugs use the same laws. A law returns nothing, or
raises AssertionError. Arrays are drawn on the host and moved to the device named in MINIGRAD_DEVICE.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import hypothesis.strategies as st
import numpy as np
from hypothesis.strategies import SearchStrategy

from .device import Array, array_module, to_device, to_host
from .memory import retained_arrays
from .op import OpResult
from .optim import Optimizer
from .tape import Tape, undo_broadcast
from .tensor import Parameter, Tensor

DEVICE = os.environ.get("MINIGRAD_DEVICE", "numpy")
Op = Callable[..., Tensor]
Values = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]


# Shapes and memory layouts are drawn, and shrink; values come from a seed, and do not.


def on_device(x: Any) -> Array:
    """``x`` on the device that the suite runs on."""
    return to_device(x if hasattr(x, "__cuda_array_interface__") else np.asarray(x), DEVICE)


def shapes(max_dims: int = 3, min_side: int = 0, min_dims: int = 0) -> SearchStrategy[tuple[int, ...]]:
    """Shapes with sides up to 4, 0 and 1 among them."""
    return st.lists(st.integers(min_side, 4), min_size=min_dims, max_size=max_dims).map(tuple)


def arrays(shape: tuple[int, ...], values: Values) -> SearchStrategy[Array]:
    """float64 arrays on the device: C or Fortran order, with gaps, or with negative strides."""
    seeds = st.integers(0, 2**16)
    drawn = st.tuples(seeds, st.sampled_from([c_order, fortran_order, with_gaps, reversed_order]))
    return drawn.map(lambda d: d[1](on_device(values(np.random.default_rng(d[0]), shape))))


def c_order(x: Array) -> Array:
    return x


def fortran_order(x: Array) -> Array:
    return array_module(x).array(x, order="F")


def with_gaps(x: Array) -> Array:
    wide = array_module(x).zeros([2 * n for n in x.shape], x.dtype)[..., *[slice(None, None, 2)] * x.ndim]
    wide[...] = x
    return wide


def reversed_order(x: Array) -> Array:
    backwards = (..., *[slice(None, None, -1)] * x.ndim)  # the dots keep a 0-d array an array
    return array_module(x).array(x[backwards], order="C")[backwards]


# Ops


def gradient_matches_difference(f: Op, *inputs: Array) -> None:
    """The gradient of ``f``, contracted with a random direction, is the central difference along it.

    ``f`` is smooth within 1e-5 of the float inputs (float64); others are constants.
    """
    direction = [on_device(np.random.default_rng(7 + i).normal(size=x.shape)) for i, x in enumerate(inputs)]
    compare_slopes(f, inputs, [[v if is_float(x) else None for v, x in zip(direction, inputs, strict=True)]])


def every_element_matches_difference(f: Op, *inputs: Array) -> None:
    """The same, one element of the inputs at a time: says which one is wrong."""
    directions = []
    for k, x in enumerate(inputs):
        for place in np.ndindex(x.shape) if is_float(x) else ():
            unit = np.zeros(x.shape)
            unit[place] = 1
            directions.append([on_device(unit) if i == k else None for i in range(len(inputs))])
    compare_slopes(f, inputs, directions)


def compare_slopes(f: Op, inputs: Sequence[Array], directions: Sequence[Sequence[Array | None]]) -> None:
    """Along each direction the gradient's slope is (f(x + hv) - f(x - hv)) / 2h.

    With h = 1e-5 rounding leaves about 1e-16 / h = 1e-11 of the summed magnitudes, and truncation h^2 / 6
    = 2e-11 times a third derivative, which the drawn values keep below some hundreds: 1e-7 is far above
    both, and a wrong coefficient is far above 1e-7.
    """
    h = 1e-5
    with Tape() as tape:
        leaves = [Tensor(x, requires_grad=is_float(x)) for x in inputs]
        y = f(*leaves)
    seed = on_device(np.random.default_rng(3).normal(size=y.shape))
    reached = y.tape is tape
    if reached:
        tape.backward(y, seed)
    for direction in directions:
        along = [(x.grad, v) for x, v in zip(leaves, direction, strict=True) if v is not None]
        slope = sum(float((g * v).sum()) for g, v in along if g is not None)
        pairs = list(zip(inputs, direction, strict=True))
        ends = [f(*[x if v is None else Tensor(x + step * v) for x, v in pairs]).data for step in (h, -h)]
        difference = float(((ends[0] - ends[1]) * seed).sum()) / (2 * h)
        scale = 1 + float(abs(y.data * seed).sum()) + abs(slope)
        assert abs(slope - difference) <= 1e-7 * scale, (
            f"the gradient's slope is {slope}, the central difference {difference}, along {direction}"
        )


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
            assert np.array_equal(to_host(d), alone[which][k], equal_nan=True), (
                f"pullback {k} depends on the calls before it"
            )
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


# Optimizers


def follows_recurrence(
    make: Callable[[list[Parameter]], Optimizer],
    recurrence: Callable[[float, list[float]], float],
    start: np.ndarray,
    gradients: Sequence[np.ndarray],
) -> None:
    """After one step per gradient every element is where the textbook's ``recurrence(w, gs)`` puts it.

    The update happens in place, in float64 within a few roundings (1e-12), and leaves gradients as they were.
    """
    parameter = Parameter(on_device(start))
    optimizer, data = make([parameter]), parameter.data
    for g in gradients:
        parameter.grad = on_device(g.copy())
        optimizer.step()
        assert np.array_equal(to_host(parameter.grad), g), "the optimizer wrote into the gradient"
        assert parameter.data is data, "the optimizer replaced the array instead of updating it"
    for place in np.ndindex(start.shape):
        expected = recurrence(float(start[place]), [float(g[place]) for g in gradients])
        value = float(data[place])
        assert abs(value - expected) <= 1e-12 * max(1.0, abs(expected)), f"{value}, by the book {expected}"


# Pieces


def is_float(x: Any) -> bool:
    return x.dtype.kind == "f"


def pullbacks_of(f: Op, inputs: Sequence[Any]) -> tuple[Tensor, list[tuple[int, tuple[int, ...], Any]]]:
    """The value of ``f`` and the entry it left on a tape: (index, shape, pullback) per float input."""
    with Tape() as tape:
        leaves = [Tensor(x, requires_grad=is_float(x)) if hasattr(x, "dtype") else x for x in inputs]
        y = f(*leaves)
    return y, tape.entries[-1]


def shares_memory(a: Array, b: Array) -> bool:
    """Whether the arrays share a byte; a NumPy scalar is a value and shares none."""
    if isinstance(a, np.generic) or isinstance(b, np.generic):
        return False
    return bool(array_module(a).shares_memory(a, b))


def channels_last(x: Array) -> Array:
    return array_module(x).ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)


def is_channels_last(x: Array) -> bool:
    """Whether memory runs through channels first, then columns, rows and images; gaps do not matter."""
    strides = [x.strides[i] for i in (0, 2, 3, 1) if x.shape[i] > 1]
    return strides == sorted(strides, reverse=True)
