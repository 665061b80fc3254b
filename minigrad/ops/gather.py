"""Ops that take elements along an axis by their indices there, or put values there.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``ops/__init__.py``.

>>> from minigrad import ops
>>> ops.gather([[1.0, 2.0]], [[1, 0]], axis=1).data.tolist()
[[2.0, 1.0]]
"""

from __future__ import annotations

import math

from ..device import on_gpu
from ..op import Array, OpResult, array_module, check_choice, faster, floating, half_in_single, op
from ..tensor_base import as_array
from .axes import axis_of
from .selection import masked, sum_by_row


@op
@faster
def gather(x: Array, indices: Array, *, axis: int) -> OpResult:
    """Element ``indices[i, j, ...]`` along ``axis``, at i, j, ... of the other axes, as torch.gather.

    The result has the shape of ``indices``, whose other axes are as long as those of x or shorter; where they
    are as long it is np.take_along_axis. Raises TypeError for indices that are not integers, ValueError
    for other shapes, and for an index that is negative or too large; where this lies on a GPU, so that the
    host would have to wait for it, the element is NaN.
    """
    x, indices, axis = checked("gather", x, indices, axis)
    xp, shape, places = array_module(x), x.shape, places_of(indices, x, axis)
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
    x, indices, axis = checked("scatter", x, indices, axis)
    xp, places = array_module(x), places_of(indices, x, axis)
    y = xp.array(x, xp.result_type(x, values), order="C")
    y.reshape(-1)[places] = xp.broadcast_to(values, places.shape)

    def to_x(g: Array) -> Array:
        d = xp.array(g, order="C")
        d.reshape(-1)[places] = 0
        return d

    return y, (to_x, None, lambda g: of_the_last(xp.take(g.reshape(-1), places), places, g.size))


@faster
def of_the_last(g: Array, places: Array, size: int) -> Array:
    """g where no later element has an equal place, from 0 to size - 1, else 0."""
    xp = array_module(g)
    numbers, last = xp.arange(places.size).reshape(places.shape), xp.empty(size, int)
    last[places] = numbers
    return masked(g, last[places] == numbers)


@op
@half_in_single
@faster
def scatter_add(x: Array, indices: Array, values: Array, *, axis: int) -> OpResult:
    """x, to which ``values[i, j, ...]`` are added at ``indices[i, j, ...]`` along ``axis``.

    As torch.scatter_add: several that go to one place are summed. ``values`` broadcast to the shape of
    ``indices``. Raises as ``gather``.
    """
    x, indices, axis = checked("scatter_add", x, indices, axis)
    xp, places = array_module(x), places_of(indices, x, axis)
    values = xp.broadcast_to(xp.asarray(values, xp.result_type(x, values)), indices.shape)
    y = x + sum_by_row(values.reshape(-1), places.reshape(-1), x.size).reshape(x.shape)
    return y, (lambda g: g, None, lambda g: xp.take(g.reshape(-1), places))


@op
def segment_sum(x: Array, segments: Array, *, count: int) -> OpResult:
    """``count`` rows, of which row i is the sum of those x[n] for which ``segments[n]`` is i, as in JAX.

    It is the adjoint of ``embedding``, which takes rows. Raises TypeError for segments that are not integers,
    ValueError where there are not as many as rows of x.
    """
    if segments.dtype.kind not in "iu":
        raise TypeError(f"segment_sum needs integer segments, got {segments.dtype}; convert them")
    if x.shape[:1] != segments.shape:
        raise ValueError(f"segment_sum of x {x.shape} needs a segment for each row, got {segments.shape}")
    return sum_by_row(x, segments, count), (lambda g: array_module(g).take(g, segments, axis=0), None)


@op
@half_in_single
def scatter_reduce(
    x: Array, indices: Array, values: Array, *, axis: int, reduce: str, include_self: bool = True
) -> OpResult:
    """x and the ``values[i, j, ...]`` that go to ``indices[i, j, ...]`` along ``axis``, reduced to one.

    ``reduce`` is "sum", "mean", "amax" or "amin", as in torch.scatter_reduce. Without ``include_self`` x
    counts only where no value goes. ``values`` broadcast to the shape of ``indices``. Equal largest elements
    share the gradient evenly; NaN has none. Raises as ``gather``, and ValueError for another reduction.
    """
    check_choice("reduction", reduce, ["sum", "mean", "amax", "amin"])
    x, indices, axis = checked("scatter_reduce", floating(as_array(x)), indices, axis)
    xp, places, shape = array_module(x), places_of(indices, x, axis).reshape(-1), indices.shape
    own = xp.array(x, xp.result_type(x, values), order="C").reshape(-1)
    v = xp.broadcast_to(xp.asarray(values, own.dtype), shape).reshape(-1)
    counts = sum_by_row(xp.ones(v.shape, own.dtype), places, own.size)
    counted = (counts == 0) | include_self  # where x counts
    if reduce in ("sum", "mean"):
        divisor = counts + counted if reduce == "mean" else xp.ones_like(counts)
        y = (masked(own, counted) + sum_by_row(v, places, own.size)) / divisor
        taken = xp.ones(v.shape, bool)
    else:
        neutral = -math.inf if reduce == "amax" else math.inf
        y = extremum_by_row(xp.where(counted, own, neutral).astype(own.dtype), places, v, reduce)
        counted, taken = counted & (own == y), v == xp.take(y, places)
        divisor = xp.maximum(counted + sum_by_row(taken.astype(own.dtype), places, own.size), 1)  # 0: NaN

    return y.reshape(x.shape), (
        lambda g: masked(g.reshape(-1) / divisor, counted).reshape(x.shape),
        None,
        lambda g: masked(xp.take(g.reshape(-1) / divisor, places), taken).reshape(shape),
    )


@faster
def extremum_by_row(y: Array, rows: Array, v: Array, reduce: str) -> Array:
    """The extremum of each element i of ``y`` and of the ``v`` where ``rows`` is i; NaN where one of them is.

    It is the last one after sorting: CuPy's ``maximum.at`` rounds float64 to float32, and ignores NaN.
    """
    xp, sign = array_module(y), 1 if reduce == "amax" else -1
    v, rows = sign * xp.concatenate([y, v]), xp.concatenate([xp.arange(len(y)), rows])
    order = xp.argsort(v)  # NaN last
    order = order[xp.argsort(rows[order], kind="stable")]
    last = xp.searchsorted(rows[order], xp.arange(len(y)), side="right") - 1
    return sign * v[order[last]]


def checked(name: str, x: Array, indices: Array, axis: int) -> tuple[Array, Array, int]:
    """The arguments of op ``name``, with the axis counted from the front; raises what ``gather`` raises."""
    x, indices = as_array(x), as_array(indices)
    axis = axis_of(axis, max(x.ndim, 1))
    if indices.dtype.kind not in "iu":
        raise TypeError(f"{name} needs integer indices, got {indices.dtype}; convert them with .astype(int)")
    shape, sizes = x.shape, indices.shape
    others = sizes != shape and [
        n > m for i, (n, m) in enumerate(zip(sizes, shape, strict=False)) if i != axis
    ]
    if len(sizes) != len(shape) or (others and any(others)):
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
    return x, indices, axis


def places_of(indices: Array, x: Array, axis: int) -> Array:
    """Where ``indices`` along ``axis`` of x point to in x's elements in C order."""
    xp, shape, sizes = array_module(x), x.shape, indices.shape
    strides = [math.prod(shape[i + 1 :]) for i in range(len(shape))] or [1]
    places, others = xp.asarray(indices, dtype=int), 0
    for i, size in enumerate(sizes):
        if i != axis:
            others = others + (xp.arange(size) * strides[i]).reshape(-1, *(1,) * (len(sizes) - 1 - i))
    return (places if strides[axis] == 1 else places * strides[axis]) + others
