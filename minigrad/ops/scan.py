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
    """The products of the elements along ``axis`` up to each of them; zeros have gradients, too."""
    axis, xp = axis_of(axis, max(x.ndim, 1)), array_module(x)
    if loops.fit(x) and x.ndim:
        return products_by_loops(x, axis)
    y = scan(xp.cumprod, x, axis)

    def to_x(g: Array) -> Array:
        zeros = x == 0
        rest, before = xp.where(zeros, 1, x), scan(xp.cumsum, zeros, axis)
        slopes = g * scan(xp.cumprod, rest, axis)
        # Products up to the first zero are y; those from there up to the second one are slopes of the first.
        d = running_sums(xp.where(before == 0, slopes, 0), axis, backwards=True) / rest
        first = running_sums(xp.where(before == 1, slopes, 0), axis, backwards=True)
        return xp.where(before == 0, d, xp.where(zeros & (before == 1), first, 0)).astype(g.dtype, copy=False)

    return y, (to_x,)


def scan(function: Callable[..., Any], x: Array, axis: int) -> Array:
    """``function`` along ``axis``, which NumPy computes three times as fast along the last one in memory."""
    if not x.ndim:
        return function(x.reshape(1), 0).reshape(())
    if array_module(x) is np and abs(x.strides[axis]) != x.itemsize:
        return function(np.ascontiguousarray(x.swapaxes(axis, -1)), -1).swapaxes(axis, -1)
    return function(x, axis)


def running_sums(x: Array, axis: int, backwards: bool = False) -> Array:
    """The sums of x along ``axis`` up to each element, or ``backwards`` from it to the last one."""
    if loops.fit(x) and x.ndim:
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
    """Behind the first zero of a row the gradient is 0. That of the zero is a sum of products without it."""
    rows, columns = x.shape
    for i in range(rows):
        zero = 0
        while zero < columns and x[i, zero] != 0:
            zero += 1
        total = 0.0
        for j in range(zero - 1, -1, -1):
            total += g[i, j] * y[i, j]
            d[i, j] = total / x[i, j]
        total, product = 0.0, y[i, zero - 1] if zero else x.dtype.type(1)
        for j in range(zero, columns):
            if j > zero:
                product *= x[i, j]
            total += g[i, j] * product
            d[i, j] = 0
        if zero < columns:
            d[i, zero] = total
