"""Values that are reduced at the place to which they go, as the messages to each node of a graph are.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``ops/__init__.py``.
"""

from __future__ import annotations

import math

import numpy as np

from ..device import Array, array_module
from ..dtypes import floating
from ..lookup import check_choice
from ..op import op
from ..pullback import OpResult
from ..tensor import as_array
from .axes import axis_of
from .gather import check_indices, places_of
from .selection import masked, sum_by_row

REDUCTIONS = ["sum", "mean", "amax", "amin"]


@op
def scatter_reduce(
    x: Array, indices: Array, values: Array, *, axis: int, reduce: str, include_self: bool = True
) -> OpResult:
    """x and the ``values[i, j, ...]`` that go to ``indices[i, j, ...]`` along ``axis``, reduced to one.

    ``reduce`` is "sum", "mean", "amax" or "amin", as in torch.scatter_reduce. Without ``include_self`` x
    counts only where no value goes. ``values`` broadcast to the shape of ``indices``. Equal largest elements
    share the gradient evenly; NaN has none. Raises as ``gather``, and ValueError for another reduction.
    """
    check_choice("reduction", reduce, REDUCTIONS)
    x, indices = floating(as_array(x)), as_array(indices)
    xp, axis = array_module(x), axis_of(axis, max(x.ndim, 1))
    check_indices("scatter_reduce", indices, x, axis)
    places, shape = places_of(indices, x, axis).reshape(-1), indices.shape
    own = xp.array(x, xp.result_type(x, values), order="C").reshape(-1)
    v = xp.broadcast_to(xp.asarray(values, own.dtype), shape).reshape(-1)

    def totals(v: Array) -> Array:
        return sum_by_row(v, places, own.size)

    counts = totals(xp.ones(v.shape, own.dtype))
    counted = (counts == 0) | include_self  # where x counts
    if reduce in ("sum", "mean"):
        divisor = counts + counted if reduce == "mean" else xp.ones_like(counts)
        y, taken = (masked(own, counted) + totals(v)) / divisor, xp.ones(v.shape, bool)
    else:
        neutral = -math.inf if reduce == "amax" else math.inf
        y = extremum_by_row(xp.where(counted, own, neutral).astype(own.dtype), places, v, reduce)
        counted, taken = counted & (own == y), v == xp.take(y, places)
        divisor = xp.maximum(counted + totals(taken.astype(own.dtype)), 1)  # 0 beside NaN

    def to_x(g: Array) -> Array:
        return masked(g.reshape(-1) / divisor, counted).reshape(x.shape)

    def to_values(g: Array) -> Array:
        return masked(xp.take(g.reshape(-1) / divisor, places), taken).reshape(shape)

    return y.reshape(x.shape), (to_x, None, to_values)


def extremum_by_row(y: Array, rows: Array, v: Array, reduce: str) -> Array:
    """The extremum of each element i of ``y`` and of the ``v`` where ``rows`` is i; NaN where one of them is.

    On a GPU the last ones after sorting: CuPy's ``maximum.at`` rounds float64 to float32, and ignores NaN.
    """
    xp = array_module(y)
    if xp is np:
        extremum = np.maximum if reduce == "amax" else np.minimum
        extremum.at(y, rows, v)
        return y
    sign = 1 if reduce == "amax" else -1
    v, rows = sign * xp.concatenate([y, v]), xp.concatenate([xp.arange(len(y)), rows])
    order = xp.argsort(v)  # NaN last
    order = order[xp.argsort(rows[order], kind="stable")]
    last = xp.searchsorted(rows[order], xp.arange(len(y)), side="right") - 1
    return sign * v[order[last]]
