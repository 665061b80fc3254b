"""Ops that order elements: values have gradients, places have none.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``ops/__init__.py``.

>>> from minigrad import ops
>>> ops.sort([3.0, 1.0, 2.0]).data.tolist()
[1.0, 2.0, 3.0]
"""

from __future__ import annotations

from operator import index
from typing import TYPE_CHECKING, Any

from ..op import Array, OpResult, array_module, as_tensor, faster, op, settings_by_name
from .axes import axis_of
from .gather import gather, places_of

if TYPE_CHECKING:
    from ..tensor import Tensor


@op
def sort(x: Array, *, axis: int = -1, descending: bool = False) -> OpResult:
    """The elements in rising order along ``axis``, NaN last, or all this turned round.

    Equal elements may get each other's gradients.
    """
    xp, axis = array_module(x), axis_of(axis, max(x.ndim, 1))
    rows = rows_along(x, axis)

    def to_x(g: Array) -> Array:
        order = xp.argsort(rows, -1)
        d = xp.empty(rows.shape, g.dtype)
        d.reshape(-1)[places_of(order, rows, rows.ndim - 1)] = turned(rows_along(g, axis), descending)
        return back(d, x, axis)

    return back(turned(xp.sort(rows, -1), descending), x, axis), (to_x,)


@op
def argsort(x: Array, *, axis: int = -1, descending: bool = False, stable: bool = False) -> OpResult:
    """The indices of the elements in rising or falling order along ``axis``: integers, without a gradient.

    Equal elements come in any order, or in theirs where ``stable``, which takes several times as long.
    """
    axis = axis_of(axis, max(x.ndim, 1))
    rows = turned(rows_along(x, axis), descending)
    order = array_module(x).argsort(rows, -1, kind="stable" if stable else None)
    return back(turned(rows.shape[-1] - 1 - order, True) if descending else order, x, axis), (None,)


@settings_by_name
def topk(x: Any, *, k: int, axis: int = -1, largest: bool = True) -> tuple[Tensor, Tensor]:
    """The k largest elements along ``axis``, the largest first, and their indices; or the k smallest.

    NaN counts as largest. The indices are integers without a gradient; of equal elements any may be taken.
    Raises ValueError where there are not k elements.
    """
    x = as_tensor(x)
    axis, k = axis_of(axis, max(x.ndim, 1)), index(k)
    rows = rows_along(x.data, axis)
    n = rows.shape[-1]
    if not (x.ndim == 0) <= k <= n:  # of a number k = 1
        raise ValueError(f"topk of {n} elements along axis {axis} takes k from 0 to {n}, got {k}")
    indices = back(largest_of_rows(rows, k, largest), x.data, axis)
    return gather(x, indices, axis=axis), as_tensor(indices)


@faster
def largest_of_rows(rows: Array, k: int, largest: bool) -> Array:
    """Indices of the k largest elements of each row, the largest first, or of the k smallest."""
    return turned(array_module(rows).argsort(rows, -1), largest)[..., :k]


def rows_along(x: Array, axis: int) -> Array:
    """x with ``axis`` last, also in memory: NumPy sorts ten times as fast there; a number as one row."""
    return array_module(x).ascontiguousarray(x.swapaxes(axis, -1) if x.ndim else x.reshape(1))


def back(rows: Array, x: Array, axis: int) -> Array:
    """Rows along ``axis`` of x in its order of axes."""
    return rows.swapaxes(axis, -1) if x.ndim else rows.reshape(())


def turned(x: Array, reverse: bool) -> Array:
    return x[..., ::-1] if reverse else x
