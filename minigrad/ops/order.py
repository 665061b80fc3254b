"""Ops that order elements: values have gradients, places have none.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``ops/__init__.py``.
"""

from __future__ import annotations

from operator import index
from typing import TYPE_CHECKING, Any

from ..device import Array, array_module
from ..faster import faster
from ..keyword_settings import settings_by_name
from ..op import op
from ..pullback import OpResult
from ..tensor_base import as_tensor, data_of
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


@settings_by_name
def argsort(x: Any, *, axis: int = -1, descending: bool = False, stable: bool = False) -> Tensor:
    """The indices of the elements in rising or falling order along ``axis``: integers, without a gradient.

    Equal elements come in any order, or in theirs where ``stable``, which takes several times as long.
    """
    x = data_of(x)
    xp, axis = array_module(x), axis_of(axis, max(x.ndim, 1))
    rows = turned(rows_along(x, axis), descending)
    order = xp.argsort(rows, -1, kind="stable" if stable else None)
    return as_tensor(back(turned(rows.shape[-1] - 1 - order, True) if descending else order, x, axis))


@settings_by_name
def topk(x: Any, *, k: int, axis: int = -1, largest: bool = True) -> tuple[Tensor, Tensor]:
    """The k largest elements along ``axis``, the largest first, and their indices; or the k smallest.

    NaN counts as largest. The indices are integers without a gradient; of equal elements any may be taken.
    Raises ValueError where there are not k elements.
    """
    x = as_tensor(x)
    xp, axis = array_module(x.data), axis_of(axis, max(x.ndim, 1))
    rows, k = rows_along(x.data, axis), index(k)
    n = rows.shape[-1]
    if not (x.ndim == 0) <= k <= n:  # of a number k = 1
        raise ValueError(f"topk of {n} elements along axis {axis} takes k from 0 to {n}, got {k}")
    if 0 < k < n:
        chosen = largest_of_rows(rows, k, largest)
        order = elements(chosen, turned(xp.argsort(elements(rows, chosen), -1), largest))
    else:
        order = turned(xp.argsort(rows, -1), largest)[..., :k]
    indices = back(order, x.data, axis)
    return gather(x, indices, axis=axis), as_tensor(indices)


@faster
def largest_of_rows(rows: Array, k: int, largest: bool) -> Array:
    """Indices of the k largest, or smallest, elements of each row, in any order."""
    n = rows.shape[-1]
    order = array_module(rows).argpartition(rows, n - k if largest else k - 1, -1)
    return order[..., n - k :] if largest else order[..., :k]


def elements(rows: Array, order: Array) -> Array:
    """The elements of each row at its indices in ``order``."""
    return array_module(rows).take(rows.reshape(-1), places_of(order, rows, rows.ndim - 1))


def rows_along(x: Array, axis: int) -> Array:
    """x with ``axis`` last, also in memory: NumPy sorts ten times as fast there; a number as one row."""
    return array_module(x).ascontiguousarray(x.swapaxes(axis, -1) if x.ndim else x.reshape(1))


def back(rows: Array, x: Array, axis: int) -> Array:
    """Rows along ``axis`` of x in its order of axes."""
    return rows.swapaxes(axis, -1) if x.ndim else rows.reshape(())


def turned(x: Array, reverse: bool) -> Array:
    return x[..., ::-1] if reverse else x
