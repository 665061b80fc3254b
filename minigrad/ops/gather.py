"""Ops that take elements along an axis by their indices there, or put them there.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``ops/__init__.py``.
"""

from __future__ import annotations

import math

import numpy as np

from .. import loops
from ..device import Array, array_module, on_gpu
from ..op import OpResult, op
from ..tensor import as_array
from .axes import axis_of
from .elementwise import masked
from .sum_by_row import sum_by_row


@op
def gather(x: Array, indices: Array, *, axis: int) -> OpResult:
    """Element ``indices[i, j, ...]`` along ``axis``, at i, j, ... of the other axes, as torch.gather.

    The result has the shape of ``indices``, whose other axes are as long as those of x or shorter; where they
    are as long it is np.take_along_axis. Raises TypeError for indices that are not integers, ValueError
    for other shapes, and for an index that is negative or too large; where this lies on a GPU, so that the
    host would have to wait for it, the element is NaN.
    """
    x, indices = as_array(x), as_array(indices)
    xp, axis = array_module(x), axis_of(axis, max(x.ndim, 1))
    check_indices("gather", indices, x, axis)
    shape = x.shape
    if loops.can_take(x) and are_whole(indices, x, axis):
        rows = three_axes(np.asarray(indices, np.intp), axis)
        return take(x, rows, axis, indices.shape), (
            lambda g: add(np.zeros(shape, g.dtype), rows, axis, g),
            None,
        )
    places = places_of(indices, x, axis)
    y = xp.take(x.reshape(-1), places)
    if on_gpu(indices) and x.dtype.kind == "f":
        y = xp.where((indices >= 0) & (indices < shape[axis] if shape else 1), y, xp.nan)
    return y, (lambda g: sum_by_row(g.reshape(-1), places.reshape(-1), math.prod(shape)).reshape(shape), None)


@op
def scatter(x: Array, indices: Array, values: Array, *, axis: int) -> OpResult:
    """x, but with ``values[i, j, ...]`` at ``indices[i, j, ...]`` along ``axis``, as torch.scatter.

    ``values`` broadcast to the shape of ``indices``. Of several for one place the last is there, on a GPU
    any of them. Raises as ``gather``.
    """
    x, indices = as_array(x), as_array(indices)
    xp, axis = array_module(x), axis_of(axis, max(x.ndim, 1))
    check_indices("scatter", indices, x, axis)
    places = places_of(indices, x, axis)
    y = xp.array(x, xp.result_type(x, values), order="C")
    y.reshape(-1)[places] = xp.broadcast_to(values, places.shape)

    def to_x(g: Array) -> Array:
        d = xp.array(g, order="C")
        d.reshape(-1)[places] = 0
        return d

    def to_values(g: Array) -> Array:
        d = xp.take(g.reshape(-1), places)
        if xp is np and are_distinct(places, g.size):
            return d
        numbers, last = xp.arange(places.size).reshape(places.shape), xp.empty(g.size, int)
        last[places] = numbers
        return masked(d, last[places] == numbers)

    return y, (to_x, None, to_values)


@op
def scatter_add(x: Array, indices: Array, values: Array, *, axis: int) -> OpResult:
    """x, to which ``values[i, j, ...]`` are added at ``indices[i, j, ...]`` along ``axis``.

    As torch.scatter_add: several that go to one place are summed. ``values`` broadcast to the shape of
    ``indices``. Raises as ``gather``.
    """
    x, indices = as_array(x), as_array(indices)
    xp, axis = array_module(x), axis_of(axis, max(x.ndim, 1))
    check_indices("scatter_add", indices, x, axis)
    values = xp.broadcast_to(xp.asarray(values, xp.result_type(x, values)), indices.shape)
    if loops.can_take(x, values) and are_whole(indices, x, axis):
        rows, sizes = three_axes(np.asarray(indices, np.intp), axis), indices.shape
        return add(x.copy(order="C"), rows, axis, values), (
            lambda g: g,
            None,
            lambda g: take(g, rows, axis, sizes),
        )
    places = places_of(indices, x, axis)
    y = x + sum_by_row(values.reshape(-1), places.reshape(-1), x.size).reshape(x.shape)
    return y, (lambda g: g, None, lambda g: xp.take(g.reshape(-1), places))


def are_whole(indices: Array, x: Array, axis: int) -> bool:
    """Whether ``indices`` of the host are as long as x along all axes but ``axis``."""
    shape = [*x.shape[:axis], *indices.shape[axis : axis + 1], *x.shape[axis + 1 :]]
    return type(indices) is np.ndarray and x.ndim > 0 and list(indices.shape) == shape


def three_axes(x: np.ndarray, axis: int) -> np.ndarray:
    """x with all axes before ``axis`` as one, and all behind it."""
    sizes = math.prod(x.shape[:axis]), x.shape[axis], math.prod(x.shape[axis + 1 :])
    return np.ascontiguousarray(x).reshape(sizes)


def take(x: np.ndarray, rows: np.ndarray, axis: int, shape: tuple[int, ...]) -> np.ndarray:
    """The elements of x at ``rows``, ``three_axes`` of indices, in the indices' ``shape``."""
    y = np.empty(shape, x.dtype)
    take_along(three_axes(x, axis), rows, three_axes(y, axis))
    return y


def add(x: np.ndarray, rows: np.ndarray, axis: int, values: np.ndarray) -> np.ndarray:
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


def are_distinct(places: Array, size: int) -> bool:
    """Whether no two of ``places``, from 0 to size - 1, are the same."""
    hit = np.zeros(size, bool)
    hit[places] = True
    return np.count_nonzero(hit) == places.size


def check_indices(name: str, indices: Array, x: Array, axis: int) -> None:
    """Raise what ``gather`` raises, where op ``name`` cannot take ``indices``."""
    if indices.dtype.kind not in "iu":
        raise TypeError(f"{name} needs integer indices, got {indices.dtype}; convert them with .astype(int)")
    shape, sizes = x.shape, indices.shape
    if len(sizes) != len(shape) or any(
        n > m for i, (n, m) in enumerate(zip(sizes, shape, strict=True)) if i != axis
    ):
        raise ValueError(
            f"{name} along axis {axis} of shape {shape} needs indices of as many axes, the others at most as "
            f"long, got {sizes}; reshape or broadcast them"
        )
    n = shape[axis] if shape else 1
    if not on_gpu(indices) and indices.size and indices.view(f"u{indices.itemsize}").max() >= n:
        raise ValueError(
            f"{name}'s indices run from {int(indices.min())} to {int(indices.max())}, axis {axis} of size "
            f"{n} has 0 to {n - 1}; correct the indices"
        )


def places_of(indices: Array, x: Array, axis: int) -> Array:
    """Where ``indices`` along ``axis`` of x point to in x's elements in C order."""
    xp, shape, sizes = array_module(x), x.shape, indices.shape
    strides = [math.prod(shape[i + 1 :]) for i in range(len(shape))] or [1]
    places, others = xp.asarray(indices, dtype=int), 0
    for i, size in enumerate(sizes):
        if i != axis:
            others = others + (xp.arange(size) * strides[i]).reshape(-1, *(1,) * (len(sizes) - 1 - i))
    return (places if strides[axis] == 1 else places * strides[axis]) + others
