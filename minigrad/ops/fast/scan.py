"""Running sums and products as loops.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``fast/__init__.py``.
"""

from __future__ import annotations

import math

import numpy as np

from ... import loops
from ...device import Array
from ...faster import form_of
from ...pullback import OpResult
from ..axes import axis_of
from ..scan import cumprod, running_sums


@form_of(running_sums)
def sums_by_loops(x: np.ndarray, axis: int, backwards: bool = False) -> np.ndarray:
    """Along rows or, where the axis is not the last one, a slice of all others at a time."""
    if not (loops.can_take(x) and x.ndim):
        return NotImplemented
    y = np.empty(x.shape, x.dtype)
    shape = math.prod(x.shape[:axis]), x.shape[axis], math.prod(x.shape[axis + 1 :])
    x = np.ascontiguousarray(x)
    if shape[2] == 1:
        write_sums_of_rows(x.reshape(shape[:2]), backwards, y.reshape(shape[:2]))
    else:
        write_sums_of_slices(x.reshape(shape), backwards, y.reshape(shape))
    return y


@form_of(cumprod)
def cumprod_by_loops(x: np.ndarray, *, axis: int) -> OpResult:
    """``cumprod`` and its gradient, of rows."""
    if not (loops.can_take(x) and x.ndim):
        return NotImplemented
    axis = axis_of(axis, x.ndim)
    shape = x.swapaxes(axis, -1).shape

    def rows(a: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(a.swapaxes(axis, -1)).reshape(-1, shape[-1])

    x = rows(x)
    y = np.empty_like(x)
    write_products(x, y)

    def to_x(g: np.ndarray) -> np.ndarray:
        d = np.empty_like(x)
        write_gradient_of_products(rows(g), x, y, d)
        return d.reshape(shape).swapaxes(axis, -1)

    return y.reshape(shape).swapaxes(axis, -1), (to_x,)


@loops.compiled
def write_sums_of_rows(x: Array, backwards: bool, y: Array) -> None:
    rows, columns = x.shape
    for i in range(rows):
        total = 0.0
        for k in range(columns):
            j = columns - 1 - k if backwards else k
            total += x[i, j]
            y[i, j] = total


@loops.compiled
def write_sums_of_slices(x: Array, backwards: bool, y: Array) -> None:
    samples, slices, size = x.shape
    sums = np.empty(size)
    for n in range(samples):
        sums[:] = 0
        for k in range(slices):
            i = slices - 1 - k if backwards else k
            for j in range(size):
                sums[j] += x[n, i, j]
                y[n, i, j] = sums[j]


@loops.compiled
def write_products(x: Array, y: Array) -> None:
    rows, columns = x.shape
    for i in range(rows):
        product = x.dtype.type(1)
        for j in range(columns):
            product *= x[i, j]
            y[i, j] = product


@loops.compiled
def write_gradient_of_products(g: Array, x: Array, y: Array, d: Array) -> None:
    """The product of the elements before each, times the sum of g and of those of the elements behind it."""
    rows, columns = x.shape
    for i in range(rows):
        total = 0.0
        for j in range(columns - 1, 0, -1):
            total += g[i, j]
            d[i, j] = y[i, j - 1] * total
            total *= x[i, j]
        if columns:
            d[i, 0] = total + g[i, 0]
