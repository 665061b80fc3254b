"""How axes are named: by integers from either end, NumPy's among them.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``reduce.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..device import Array, array_module
from ..tensor import Axis


def axes_of(axis: Axis, ndim: int) -> tuple[int, ...]:
    """The axes that ``axis`` names, all of them for None, each from 0 to ndim - 1.

    0 and -1 name no axis of a number, as in NumPy. Raises TypeError for what is no integer, ValueError for an
    axis that is not there or named twice.
    """
    if axis is None:
        return tuple(range(ndim))
    axes = tuple(axis_of(a, max(ndim, 1)) for a in (axis if isinstance(axis, list | tuple) else (axis,)))
    if len(set(axes)) < len(axes):
        raise ValueError(f"axis={axis} names an axis twice; name each once")
    return axes if ndim else ()


def axis_of(axis: Any, ndim: int) -> int:
    """``axis`` counted from the front; raises as ``axes_of``."""
    if not isinstance(axis, int | np.integer):
        raise TypeError(
            f"an axis is an integer, got {axis!r}; pass one, or a tuple where an op takes several"
        )
    if not -ndim <= int(axis) < ndim:
        raise ValueError(f"an array with {ndim} axes has no axis {axis}; pass one from {-ndim} to {ndim - 1}")
    return int(axis) % ndim


def spreader(x: Array, axes: tuple[int, ...]) -> Callable[[Array], Array]:
    """g of the reduced shape -> a view of it in the shape of ``x``."""
    xp, shape, dtype, reduced = array_module(x), x.shape, x.dtype, keepdims_shape(x.shape, axes)
    return lambda g: xp.broadcast_to(xp.asarray(g, dtype=dtype).reshape(reduced), shape)


def keepdims_shape(shape: tuple[int, ...], axes: tuple[int, ...]) -> tuple[int, ...]:
    """``shape`` with the reduced axes kept as 1."""
    return tuple(1 if i in axes else n for i, n in enumerate(shape))
