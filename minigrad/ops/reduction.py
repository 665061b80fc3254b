"""What the losses share: pairs of arrays, and the mean or the sum over the losses of elements.

Lecture section: gradient descent. Lesson: 01_gradient_descent, by ``loss.py``.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..device import Array
from ..dtypes import alike
from ..forward_pass import check_whole_batch
from ..lookup import check_choice
from ..pullback import shape_of


def pair(loss: str, x: Array, y: Array) -> tuple[Array, Array]:
    """x and y as floats of one dtype; raises ValueError where their shapes differ."""
    if shape_of(x) != shape_of(y):
        raise ValueError(
            f"{loss} compares arrays of one shape, got {shape_of(x)} and {shape_of(y)}; reshape one of them"
        )
    return alike(x, y)


def reduced(
    loss: str, each: Array, reduction: str, divisor: Array | None = None, *others: str
) -> tuple[Array, Callable[[Array], Array]]:
    """The value of a loss, from the losses of its elements, and g -> the factor of their gradients.

    A mean, and ``others`` by their name, divides the sum by ``divisor``, by default the number of elements.
    A divisor of 0 makes it NaN, with the gradient 0. Raises ValueError for an unknown ``reduction``, and for
    the sum over a part of a batch.
    """
    check_choice("reduction", reduction, ("mean", "sum", "none", *others))
    if reduction == "none":
        return each, lambda g: g
    total = each.sum()
    if reduction == "sum":
        check_whole_batch(f'{loss} with reduction="sum"')
        return total, lambda g: g
    if divisor is None:
        n = each.dtype.type(max(each.size, 1))
        return total / n, lambda g: g / n
    with np.errstate(invalid="ignore"):  # 0 / 0
        return total / divisor, lambda g: g / (divisor + (divisor == 0))
