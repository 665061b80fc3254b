"""Losses of numbers as loops.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``fast/__init__.py``.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from ... import loops
from ...device import Array
from ...faster import form_of
from ...pullback import OpResult
from ..reduction import pair, reduced
from ..regression_loss import clipped_loss
from .elementwise_loops import of_elements


@form_of(clipped_loss)
def by_loops(loss: str, x: Array, y: Array, steepness: float, limit: float, reduction: str) -> OpResult:
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
