"""What a loss makes of the losses of its elements: their mean, their sum, or nothing.

Lecture section: gradient descent. Lesson: 01_gradient_descent, by ``loss.py``.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..device import Array, array_module
from ..forward_pass import check_whole_batch
from ..lookup import check_choice

REDUCTIONS = ("mean", "sum", "none")


def check_reduction(loss: str, reduction: str, names: tuple[str, ...] = REDUCTIONS) -> None:
    """Raise ValueError for an unknown ``reduction``, and for the sum over a part of a batch."""
    check_choice("reduction", reduction, names)
    if reduction == "sum":
        check_whole_batch(f'{loss} with reduction="sum"')


def reduced(each: Array, reduction: str, count: int | Array) -> tuple[Array, Callable[[Array], Array]]:
    """The value of a loss, from those of its elements, and g -> the factor of their gradients.

    All reductions but "sum" and "none" divide the sum by ``count``: 0 / 0 is NaN, with the gradient 0.
    """
    if reduction == "none":
        return each, lambda g: g
    xp = array_module(each)
    total = xp.sum(each)
    if reduction == "sum":
        return total, lambda g: g
    divisor = count if isinstance(count, int) else xp.where(count == 0, 1, count)
    with np.errstate(invalid="ignore"):
        return total / (each.dtype.type(count) if isinstance(count, int) else count), lambda g: g / divisor
