"""Elements taken along an axis, added along an axis, and added by row, as loops.

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
from ..gather import checked, extremum_by_row, gather, of_the_last, scatter_add
from ..selection import sum_by_row


@form_of(gather)
def gather_by_loops(x: Array, indices: Array, *, axis: int) -> OpResult:
    if not are_whole(indices, x, axis):
        return NotImplemented
    x, indices, axis = checked("gather", x, indices, axis)
    shape, sizes, rows = x.shape, indices.shape, three_axes(np.asarray(indices, np.intp), axis)
    to_x = lambda g: added(np.zeros(shape, g.dtype), rows, axis, g)  # noqa: E731
    return taken(x, rows, axis, sizes), (to_x, None)


@form_of(scatter_add)
def scatter_add_by_loops(x: Array, indices: Array, values: Array, *, axis: int) -> OpResult:
    if not are_whole(indices, x, axis) or np.result_type(x, values) != x.dtype:
        return NotImplemented
    x, indices, axis = checked("scatter_add", x, indices, axis)
    values = np.broadcast_to(np.asarray(values, x.dtype), indices.shape)
    sizes, rows = indices.shape, three_axes(np.asarray(indices, np.intp), axis)
    to_values = lambda g: taken(g, rows, axis, sizes)  # noqa: E731
    return added(x.copy(order="C"), rows, axis, values), (lambda g: g, None, to_values)


@form_of(of_the_last)
def of_distinct_places(g: np.ndarray, places: np.ndarray, size: int) -> np.ndarray:
    """The host looks whether all places are distinct."""
    if type(g) is not np.ndarray:
        return NotImplemented
    hit = np.zeros(size, bool)
    hit[places] = True
    return g if np.count_nonzero(hit) == places.size else NotImplemented


@form_of(extremum_by_row)
def extremum_in_place(y: Array, rows: Array, v: Array, reduce: str) -> Array:
    """NumPy's ``maximum.at`` is exact, and NaN where an element is."""
    if type(y) is not np.ndarray:
        return NotImplemented
    extremum = np.maximum if reduce == "amax" else np.minimum
    extremum.at(y, rows, v)
    return y


@form_of(sum_by_row)
def sum_by_row_in_loops(g: np.ndarray, rows: np.ndarray, count: int) -> np.ndarray:
    if not loops.can_take(g):
        return NotImplemented
    d = np.zeros((count, *g.shape[1:]), g.dtype)
    flat, rows = np.ascontiguousarray(g).reshape(len(g), -1), np.ascontiguousarray(rows, np.intp)
    add_rows(flat, rows, d.reshape(count, -1))
    return d


def are_whole(indices: Array, x: Array, axis: int) -> bool:
    """Whether loops take x, and the indices, of the host, are as long along all axes but ``axis``."""
    if not (loops.can_take(x) and type(indices) is np.ndarray and x.ndim > 0):
        return False
    axis = axis_of(axis, x.ndim)
    shape = [*x.shape[:axis], *indices.shape[axis : axis + 1], *x.shape[axis + 1 :]]
    return list(indices.shape) == shape


def three_axes(x: np.ndarray, axis: int) -> np.ndarray:
    """x as (B, n, A), where n is its length along ``axis``, B all axes before and A all after it."""
    sizes = math.prod(x.shape[:axis]), x.shape[axis], math.prod(x.shape[axis + 1 :])
    return np.ascontiguousarray(x).reshape(sizes)


def taken(x: np.ndarray, rows: np.ndarray, axis: int, shape: tuple[int, ...]) -> np.ndarray:
    """The elements of x at ``rows``, ``three_axes`` of indices, in the indices' ``shape``."""
    y = np.empty(shape, x.dtype)
    take_along(three_axes(x, axis), rows, three_axes(y, axis))
    return y


def added(x: np.ndarray, rows: np.ndarray, axis: int, values: np.ndarray) -> np.ndarray:
    """x, a contiguous array, to which the values are added at ``rows``, in its memory."""
    add_along(three_axes(values, axis), rows, three_axes(x, axis))
    return x


@loops.compiled
def take_along(x: Array, indices: Array, y: Array) -> None:
    """All are (B, n, A), n along the axis; element [b, i, a] of y is [b, indices[b, i, a], a] of x."""
    before, count, behind = indices.shape
    for b in range(before):
        if behind == 1:
            places, row, out = indices[b, :, 0], x[b, :, 0], y[b, :, 0]
            for i in range(count):
                out[i] = row[places[i]]
            continue
        for i in range(count):
            for a in range(behind):
                y[b, i, a] = x[b, indices[b, i, a], a]


@loops.compiled
def add_along(values: Array, indices: Array, x: Array) -> None:
    """The transpose: element [b, i, a] of the values is added to [b, indices[b, i, a], a] of x."""
    before, count, behind = indices.shape
    for b in range(before):
        if behind == 1:
            places, row, part = indices[b, :, 0], x[b, :, 0], values[b, :, 0]
            for i in range(count):
                row[places[i]] += part[i]
            continue
        for i in range(count):
            for a in range(behind):
                x[b, indices[b, i, a], a] += values[b, i, a]


@loops.compiled
def add_rows(g: Array, rows: Array, d: Array) -> None:
    if g.shape[1] == 1:
        numbers, sums = g[:, 0], d[:, 0]
        for i in range(len(rows)):
            sums[rows[i]] += numbers[i]
        return
    for i in range(len(rows)):
        row, part = d[rows[i]], g[i]
        for j in range(len(part)):
            row[j] += part[j]
