"""Reductions on the host, which may look at a result and leave out the work that it does not need.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``fast/__init__.py``.
"""

from __future__ import annotations

import numpy as np

from ...device import Array, array_module
from ...faster import form_of
from ...pullback import OpResult
from ..axes import Axis, axes_of, spreader
from ..reduce import is_extremum, prod, products_of_others


@form_of(is_extremum)
def is_the_number(x: Array, extremum: Array) -> Array:
    """Where x is the extremum, none of which is NaN; nobody waits for a GPU's answer to that."""
    if array_module(x) is not np or np.isnan(extremum).any():
        return NotImplemented
    return x == extremum


@form_of(prod)
def prod_by_division(x: Array, *, axis: Axis = None, keepdims: bool = False) -> OpResult:
    """The product of all others is a quotient, where the product has all its digits."""
    if array_module(x) is not np:
        return NotImplemented
    axes = axes_of(axis, x.ndim)
    spread, y = spreader(x, axes), x.prod(axis=axes, keepdims=keepdims)

    def to_x(g: np.ndarray) -> np.ndarray:
        return spread(g * y) / x if is_divisible(y) else spread(g) * products_of_others(x, axes)

    return y, (to_x,)


def is_divisible(y: np.ndarray) -> bool:
    """Whether products have all their digits, so that one factor less is a quotient."""
    size, info = np.abs(y), np.finfo(y.dtype)
    return bool(((size >= info.tiny) & (size <= info.max)).all())
