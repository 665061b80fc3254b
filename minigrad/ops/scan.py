"""Ops whose result at each place depends on all elements up to there.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``ops/__init__.py``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import loops
from ..device import Array, array_module
from ..op import OpResult, op
from .axes import axis_of


@op
def cumsum(x: Array, *, axis: int) -> OpResult:
    """The sums of the elements along ``axis`` up to each of them."""
    axis = axis_of(axis, max(x.ndim, 1))
    return running_sums(x, axis), (lambda g: running_sums(g, axis, backwards=True),)


@op
def cumprod(x: Array, *, axis: int) -> OpResult:
    """The products of the elements along ``axis`` up to each of them; zeros and infinities have gradients."""
    axis, xp = axis_of(axis, max(x.ndim, 1)), array_module(x)
    if loops.can_take(x) and x.ndim:
        return products_by_loops(x, axis)
    y = scan(xp.cumprod, x, axis)

    def to_x(g: Array) -> Array:
        return products_before(y, axis) * sums_of_products_behind(g, x, axis)

    return y, (to_x,)


def products_before(y: Array, axis: int) -> Array:
    """From the running products y along ``axis`` those of the elements before each; 1 before the first."""
    if not y.ndim:
        return array_module(y).ones_like(y)
    rows = y.swapaxes(0, axis)
    return array_module(y).concatenate([array_module(y).ones_like(rows[:1]), rows[:-1]]).swapaxes(0, axis)


def sums_of_products_behind(g: Array, x: Array, axis: int) -> Array:
    """s with s[i] = g[i] + x[i + 1] s[i + 1] along ``axis``, of twice as many terms in each pass.

    Nothing is divided: zeros and infinities are factors as others.
    """
    if not x.ndim:
        return g
    xp, sums, products, step = array_module(x), g.swapaxes(0, axis), x.swapaxes(0, axis)[1:], 1
    while step < len(sums):
        sums = xp.concatenate([sums[:-step] + products * sums[step:], sums[-step:]])
        products, step = products[:-step] * products[step:], 2 * step
    return sums.swapaxes(0, axis)


def scan(function: Callable[..., Any], x: Array, axis: int) -> Array:
    """``function`` along ``axis``, which NumPy computes three times as fast along the last one in memory."""
    if not x.ndim:
        return function(x.reshape(1), 0).reshape(())
    if array_module(x) is np and abs(x.strides[axis]) != x.itemsize:
        return function(np.ascontiguousarray(x.swapaxes(axis, -1)), -1).swapaxes(axis, -1)
    return function(x, axis)


def running_sums(x: Array, axis: int, backwards: bool = False) -> Array:
    """The sums of x along ``axis`` up to each element, or ``backwards`` from it to the last one."""
    if loops.can_take(x) and x.ndim:
        return sums_by_loops(x, axis, backwards)
    turned = (..., *[slice(None, None, -1 if backwards and i == axis else None) for i in range(x.ndim)])
    return scan(array_module(x).cumsum, x[turned], axis)[turned]


def sums_by_loops(x: np.ndarray, axis: int, backwards: bool) -> np.ndarray:
    """The same, along rows or, where the axis is not the last one, a slice of all others at a time."""
    y = np.empty(x.shape, x.dtype)
    shape = math.prod(x.shape[:axis]), x.shape[axis], math.prod(x.shape[axis + 1 :])
    x = np.ascontiguousarray(x)
    if shape[2] == 1:
        write_sums_of_rows(x.reshape(shape[:2]), backwards, y.reshape(shape[:2]))
    else:
        write_sums_of_slices(x.reshape(shape), backwards, y.reshape(shape))
    return y


def products_by_loops(x: np.ndarray, axis: int) -> OpResult:
    """``cumprod`` and its gradient, of rows."""
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
