"""Ops that replace the elements that a mask chooses.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``ops/__init__.py``.
"""

from __future__ import annotations

from operator import index
from typing import TYPE_CHECKING, Any

import numpy as np

from ..device import Array, array_module
from ..keyword_settings import settings_by_name
from ..op import op
from ..pullback import OpResult
from ..tensor_base import TensorBase, as_operand, as_tensor
from .elementwise import where
from .selection import masked

if TYPE_CHECKING:
    from ..tensor import Tensor


@op
def tril(x: Array, *, k: int = 0) -> OpResult:
    """Matrices (..., n, m) with 0 above their k-th diagonal; those above the main one have k > 0."""
    mask = on_or_below(x, k)
    return masked(x, mask), (lambda g: masked(g, mask),)


@op
def triu(x: Array, *, k: int = 0) -> OpResult:
    """Matrices (..., n, m) with 0 below their k-th diagonal; those above the main one have k > 0."""
    mask = ~on_or_below(x, index(k) - 1)
    return masked(x, mask), (lambda g: masked(g, mask),)


def on_or_below(x: Array, k: int) -> Array:
    """Which elements of the last two axes stand on the k-th diagonal or below it."""
    if x.ndim < 2:
        raise ValueError(
            f"a triangle is one of matrices (..., n, m), got an array of shape {x.shape}; reshape it"
        )
    xp, (n, m) = array_module(x), x.shape[-2:]
    return xp.arange(n)[:, None] >= xp.arange(m) - index(k)


@settings_by_name
def masked_fill(x: Any, mask: Any, *, value: Any) -> Tensor:
    """x, but ``value``, a number, where ``mask`` holds; the mask broadcasts to the shape of x.

    Raises ValueError where it does not.
    """
    x = as_tensor(x)
    mask = mask.data if isinstance(mask, TensorBase) else as_operand(mask, (x,))
    shape = np.shape(mask)
    if len(shape) > x.ndim or any(n not in (1, m) for n, m in zip(shape[::-1], x.shape[::-1], strict=False)):
        raise ValueError(f"a mask of shape {shape} does not broadcast to {x.shape}; reshape one of them")
    return where(mask, value, x)
