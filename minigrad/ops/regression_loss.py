"""Losses of numbers: means over elements, so that a share of a batch weighs in by its size.

Lecture section: back-propagation. Lesson: 02_backpropagation.
"""

from __future__ import annotations

from ..device import Array, array_module
from ..faster import faster
from ..half import half_in_single
from ..op import op
from ..pullback import OpResult
from .reduction import pair, reduced


@op
@half_in_single
def mse(x: Array, y: Array, *, reduction: str = "mean") -> OpResult:
    """The mean of (x - y) ** 2 over all elements of two arrays of one shape.

    y is taken in the dtype of x, so that float64 targets do not widen what a float32 model computes; of
    integers they are floats. "sum" and "none" are the other reductions. Raises ValueError for shapes that
    differ, for an unknown reduction, and for the sum where a backend has split the batch; so do the losses
    below.
    """
    x, y = pair("mse", x, y)
    d = x - y
    value, scale = reduced("mse", d * d, reduction)
    return value, (lambda g: d * (scale(g) * 2), lambda g: d * (scale(g) * -2))


@op
@half_in_single
def l1_loss(x: Array, y: Array, *, reduction: str = "mean") -> OpResult:
    """The mean of |x - y| over all elements, with gradient 0 where they are equal."""
    xp, (x, y) = array_module(x), pair("l1_loss", x, y)
    d = x - y
    value, scale = reduced("l1_loss", xp.abs(d), reduction)
    return value, (lambda g: xp.sign(d) * scale(g), lambda g: xp.sign(d) * -scale(g))


@op
@half_in_single
def huber_loss(x: Array, y: Array, *, delta: float = 1.0, reduction: str = "mean") -> OpResult:
    """The mean of d ** 2 / 2 where |d| <= delta, else delta (|d| - delta / 2), with d = x - y (Huber 1964).

    Raises ValueError unless delta is positive, too.
    """
    if not delta > 0:
        raise ValueError(f"delta must be positive, got {delta}")
    return clipped_loss("huber_loss", x, y, 1.0, float(delta), reduction)


@op
@half_in_single
def smooth_l1_loss(x: Array, y: Array, *, beta: float = 1.0, reduction: str = "mean") -> OpResult:
    """The Huber loss with delta = beta, divided by beta: its slope far away is 1 (Girshick 2015).

    Raises ValueError unless beta is positive, too.
    """
    if not beta > 0:
        raise ValueError(f"beta must be positive, got {beta}; l1_loss is what it comes to at 0")
    return clipped_loss("smooth_l1_loss", x, y, 1 / float(beta), 1.0, reduction)


@faster
def clipped_loss(loss: str, x: Array, y: Array, steepness: float, limit: float, reduction: str) -> OpResult:
    """The loss whose slope in d = x - y is ``steepness`` d, clipped to +-``limit``."""
    x, y = pair(loss, x, y)
    d = x - y
    slope = (d * steepness).clip(-limit, limit)
    value, scale = reduced(loss, slope * (d - slope / (2 * steepness)), reduction)
    return value, (lambda g: slope * scale(g), lambda g: slope * -scale(g))
