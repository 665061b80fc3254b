"""Ops whose result at each place depends on all elements up to there.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``ops/__init__.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from ..device import Array, array_module
from ..op import OpResult, op
from .axes import axis_of

PIECE = 16  # elements of a row that one product sums
SLICE = 128  # elements that are added at once, at least
ROWS = 1 << 14  # elements of which products are faster than one addition after the other


@op
def cumsum(x: Array, *, axis: int) -> OpResult:
    """The sums of the elements along ``axis`` up to each of them."""
    axis = axis_of(axis, max(x.ndim, 1))
    return running_sums(x, axis), (lambda g: running_sums(g, axis, backwards=True),)


@op
def cumprod(x: Array, *, axis: int) -> OpResult:
    """The products of the elements along ``axis`` up to each of them; zeros have gradients, too."""
    axis, xp = axis_of(axis, max(x.ndim, 1)), array_module(x)
    y = scan(xp.cumprod, x, axis)

    def to_x(g: Array) -> Array:
        zeros = x == 0
        if xp is np and not zeros.any():
            return running_sums(g * y, axis, backwards=True) / x
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
    if type(x) is np.ndarray and x.dtype.char in "fd" and x.ndim and x.size:
        n = x.shape[axis]
        if x.strides[axis] != x.itemsize and x.size >= SLICE * n:
            return sums_of_slices(x, axis, backwards)
        if n >= 4 * PIECE and x.size >= ROWS:
            rows = np.ascontiguousarray(x.swapaxes(axis, -1))
            sums = sums_within_rows(rows.reshape(-1, n), backwards).reshape(rows.shape)
            if np.isfinite(sums[..., 0 if backwards else -1]).all():  # infinity times 0 is NaN
                return sums.swapaxes(axis, -1)
    turned = (..., *[slice(None, None, -1 if backwards and i == axis else None) for i in range(x.ndim)])
    return scan(array_module(x).cumsum, x[turned], axis)[turned]


def sums_of_slices(x: np.ndarray, axis: int, backwards: bool) -> np.ndarray:
    """The same, a slice at a time: ten times as fast as np.cumsum along another axis than the last."""
    slices = np.moveaxis(x, axis, 0)
    sums = np.empty_like(slices)
    order = range(len(slices))[:: -1 if backwards else 1]
    sums[order[0]] = slices[order[0]]
    for last, i in pairwise(order):
        np.add(sums[last], slices[i], out=sums[i])
    return np.moveaxis(sums, 0, axis)


def sums_within_rows(rows: np.ndarray, backwards: bool) -> np.ndarray:
    """The same of rows (N, n), by products of their pieces and a triangle of ones.

    np.cumsum takes three times as long, since each addition waits for the last one, and its errors are
    several times as large: here n numbers have chains of ``PIECE`` additions, one for each digit of n.
    """
    n = rows.shape[1]
    if n % PIECE:
        rows = np.concatenate([rows, np.zeros((len(rows), -n % PIECE), rows.dtype)], 1)
    ones = np.ones((PIECE, PIECE), rows.dtype)
    with np.errstate(invalid="ignore", over="ignore"):
        sums = rows.reshape(-1, PIECE) @ (np.tril(ones) if backwards else np.triu(ones))
        totals = sums[:, 0 if backwards else -1].reshape(len(rows), -1)  # of the pieces
        if totals.shape[1] > 1:
            others = np.zeros_like(totals)  # the sum of the pieces before, or behind
            if backwards:
                others[:, :-1] = sums_within_rows(totals[:, 1:], backwards)
            else:
                others[:, 1:] = sums_within_rows(totals[:, :-1], backwards)
            sums += others.reshape(-1, 1)
    return sums.reshape(rows.shape)[:, :n]
