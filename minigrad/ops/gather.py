"""Ops that take elements along an axis by their indices there, or put them there.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``ops/__init__.py``.
"""

from __future__ import annotations

import math

import numpy as np

from ..device import Array, array_module, on_gpu
from ..faster import faster
from ..op import op
from ..pullback import OpResult
from ..tensor import as_array
from .axes import axis_of
from .selection import masked, sum_by_row


@op
def gather(x: Array, indices: Array, *, axis: int) -> OpResult:
    """Element ``indices[i, j, ...]`` along ``axis``, at i, j, ... of the other axes, as torch.gather.

    The result has the shape of ``indices``, whose other axes are as long as those of x or shorter; where they
    are as long it is np.take_along_axis. Raises TypeError for indices that are not integers, ValueError
    for other shapes, and for an index that is negative or too large; where this lies on a GPU, so that the
    host would have to wait for it, the element is NaN.
    """
    x, indices = as_array(x), as_array(indices)
    axis = axis_of(axis, max(x.ndim, 1))
    check_indices("gather", indices, x, axis)
    return gather_by_places(x, indices, axis)


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
    return scatter_add_by_places(x, indices, values, axis)


@faster
def gather_by_places(x: Array, indices: Array, axis: int) -> OpResult:
    """``gather`` of indices that were checked."""
    xp, shape, places = array_module(x), x.shape, places_of(indices, x, axis)
    y = xp.take(x.reshape(-1), places)
    if on_gpu(indices) and x.dtype.kind == "f":
        y = xp.where((indices >= 0) & (indices < shape[axis] if shape else 1), y, xp.nan)
    return y, (lambda g: sum_by_row(g.reshape(-1), places.reshape(-1), math.prod(shape)).reshape(shape), None)


@faster
def scatter_add_by_places(x: Array, indices: Array, values: Array, axis: int) -> OpResult:
    """``scatter_add`` of indices that were checked and values of their shape."""
    xp, places = array_module(x), places_of(indices, x, axis)
    y = x + sum_by_row(values.reshape(-1), places.reshape(-1), x.size).reshape(x.shape)
    return y, (lambda g: g, None, lambda g: xp.take(g.reshape(-1), places))


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
