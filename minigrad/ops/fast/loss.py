"""Losses of two arrays in fewer passes: as loops, or as kernels on a GPU.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``fast/__init__.py``.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ... import loops
from ...device import Array, array_module
from ...dtypes import alike
from ...faster import form_of
from ...pullback import OpResult, shape_of
from ..elementwise import logistic
from ..loss import binary_cross_entropy_with_logits, clipped_loss, factor_like, pair, reduced, shares
from . import loss_kernels
from .elementwise_kernels import can_take
from .elementwise_loops import of_elements


@form_of(binary_cross_entropy_with_logits)
def binary_cross_entropy_with_logits_in_one_pass(
    logits: Array, targets: Array, *, weight: Any = None, pos_weight: Any = None, reduction: str = "mean"
) -> OpResult:
    """log(1 + e^z) - t z, with the exponential always of a negative number; weights are factors."""
    if shape_of(logits) != shape_of(targets):
        return NotImplemented
    x, t = alike(logits, targets)
    if weight is None and pos_weight is None and reduction == "mean" and can_take(x, t):
        return loss_kernels.binary_cross_entropy_with_logits(x, t)
    xp, both = array_module(x), factor_like("weight", weight, x)
    positive = factor_like("pos_weight", pos_weight, x)
    tail, plain = xp.log1p(xp.exp(-xp.abs(x))), pos_weight is None
    ones = t if plain else positive * t
    terms = None if plain else ones + (1 - t)
    if terms is None:
        each = x * (xp.greater(x, 0) - t) + tail
    else:
        each = terms * tail + (1 - t) * xp.maximum(x, 0) - ones * xp.minimum(x, 0)
    each = each if weight is None else both * each
    value, scale = reduced("binary_cross_entropy_with_logits", each, reduction)

    def to_logits(g: Array) -> Array:
        d = logistic(x)
        if terms is not None:
            d *= terms
        d -= ones
        d *= scale(g) if weight is None else scale(g) * both
        return d

    def to_targets(g: Array) -> Array:
        slope = -x if plain else (positive - 1) * (tail - xp.minimum(x, 0)) - x
        return slope * (scale(g) * both)

    return value, (to_logits, to_targets)


@form_of(shares)
def shares_without_a_mask(t: Array, x: Array) -> Array:
    """The host looks whether any share is 0."""
    return t * x if type(t) is np.ndarray and t.all() else NotImplemented


@form_of(clipped_loss)
def clipped_loss_by_loops(
    loss: str, x: Array, y: Array, steepness: float, limit: float, reduction: str
) -> OpResult:
    """The loss and its slopes in one pass."""
    x, y = pair(loss, x, y)
    if not loops.can_take(x, y) or reduction == "none":
        return NotImplemented
    total = np.empty(1, x.dtype)
    slope = of_elements(partial(write_slope, total), x, y, settings=[steepness, limit, 0.5 / steepness])
    value, scale = reduced(loss, total, reduction, x.dtype.type(x.size))
    return value, (lambda g: slope * scale(g), lambda g: slope * -scale(g))


@loops.compiled
def write_slope(
    total: Array, x: Array, y: Array, steepness: float, limit: float, half: float, slope: Array
) -> None:
    """``half`` is 1 / (2 ``steepness``); into ``total`` comes the sum of the losses."""
    loss = 0.0
    for i in range(len(x)):
        d = x[i] - y[i]
        s = d * steepness
        s = limit if s > limit else -limit if s < -limit else s
        loss += s * (d - s * half)
        slope[i] = s
    total[0] = loss
