"""Functions of each element as loops; ``ops/elementwise`` has the readable forms.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``fast/elementwise.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ... import loops
from ...device import Array
from .exponential import exp


def of_elements(loop: Callable[..., None], *arrays: np.ndarray, settings: Sequence[float] = ()) -> np.ndarray:
    """The new array that ``loop(*arrays, *settings, new)`` writes, all as vectors and in the first's dtype.

    It has the shape and the memory order of the first array, in which the loop meets the elements of all.
    """
    x = arrays[0]
    y = np.empty_like(x)
    order = sorted(range(x.ndim), key=lambda axis: -y.strides[axis])
    rows = (np.ascontiguousarray(a.transpose(order)) for a in (*arrays, y))
    *vectors, out = (a.reshape(-1) for a in rows)  # the last one is a view
    loop(*vectors, *map(x.dtype.type, settings), out)
    return y


@loops.compiled
def write_logistic(x: Array, y: Array) -> None:
    one = x.dtype.type(1)
    for i in range(len(x)):
        y[i] = one / (one + exp(-x[i]))


@loops.compiled
def write_logistic_gradient(y: Array, g: Array, d: Array) -> None:
    one = y.dtype.type(1)
    for i in range(len(y)):
        d[i] = (one - y[i]) * y[i] * g[i]


@loops.compiled
def write_leaky(x: Array, slope: float, y: Array) -> None:
    for i in range(len(x)):
        y[i] = x[i] if x[i] > 0 else x[i] * slope


@loops.compiled
def write_leaky_gradient(x: Array, g: Array, slope: float, d: Array) -> None:
    for i in range(len(x)):
        d[i] = g[i] if x[i] > 0 else g[i] * slope


@loops.compiled
def write_absolute_gradient(x: Array, g: Array, d: Array) -> None:
    zero = x.dtype.type(0)
    for i in range(len(x)):
        d[i] = g[i] if x[i] > zero else -g[i] if x[i] < zero else g[i] * zero
