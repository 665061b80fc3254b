"""The law of gradients, for any op; and the memory layouts that an array may have.

The library's tests, the lessons and the seeded bugs use the same law. Its arrays are drawn on the host and
moved to the device named in MINIGRAD_DEVICE.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .device import Array, array_module, on_gpu, to_device
from .tape import Tape
from .tensor import Tensor

DEVICE = os.environ.get("MINIGRAD_DEVICE", "numpy")
Op = Callable[..., Tensor]


def on_device(x: Any) -> Array:
    """``x`` on the device that the suite runs on."""
    return to_device(x if on_gpu(x) else np.asarray(x), DEVICE)


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


def gradient_matches_difference(f: Op, *inputs: Array) -> None:
    """The gradient of ``f``, contracted with a random direction, is the central difference along it.

    ``f`` is smooth within 1e-5 of the float inputs (float64); others are constants.
    """
    direction = [on_device(np.random.default_rng(7 + i).normal(size=x.shape)) for i, x in enumerate(inputs)]
    compare_slopes(f, inputs, [[v if is_float(x) else None for v, x in zip(direction, inputs, strict=True)]])


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
    if y.tape is tape:
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


def shares_memory(a: Array, b: Array) -> bool:
    """Whether the arrays share a byte; a NumPy scalar shares none, nor do the host and a GPU.

    CuPy hands arrays without axes to its kernels by value, also to that which asks for their addresses.
    """
    if isinstance(a, np.generic) or isinstance(b, np.generic) or on_gpu(a) != on_gpu(b):
        return False
    return bool(array_module(a).shares_memory(a.reshape(a.shape or 1), b.reshape(b.shape or 1)))


def is_float(x: Any) -> bool:
    return x.dtype.kind == "f"
