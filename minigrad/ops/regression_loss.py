"""Losses of numbers: means over elements, so that a share of a batch weighs in by its size.

Lecture section: back-propagation. Lesson: 02_backpropagation.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from .. import loops
from ..device import Array, array_module
from ..op import OpResult, op, shape_of
from .elementwise import alike
from .fast.elementwise_loops import of_elements
from .half import half_in_single
from .reduction import check_reduction, reduced


@op
@half_in_single
def mse(x: Array, y: Array, *, reduction: str = "mean") -> OpResult:
    """The mean of (x - y) ** 2 over all elements of two arrays of one shape.

    y is taken in the dtype of x, so that float64 targets do not widen what a float32 model computes; of
    integers they are floats. "sum" and "none" are the other reductions. Raises ValueError for shapes that
    differ, for an unknown reduction, and for the sum where a backend has split the batch; so do the losses
    below.
    """
    shape = check_one_shape("mse", x, y)
    x, y = alike(x, y)
    d, n = x - y, max(math.prod(shape), 1)
    if reduction == "mean":
        return array_module(d).sum(d * d) / d.dtype.type(n), (
            lambda g: d * (g * 2 / n),
            lambda g: d * (g * -2 / n),
        )
    check_reduction("mse", reduction)
    value, scale = reduced(d * d, reduction, n)
    return value, (lambda g: d * (scale(g) * 2), lambda g: d * (scale(g) * -2))


@op
@half_in_single
def l1_loss(x: Array, y: Array, *, reduction: str = "mean") -> OpResult:
    """The mean of |x - y| over all elements, with gradient 0 where they are equal."""
    shape = check_one_shape("l1_loss", x, y)
    check_reduction("l1_loss", reduction)
    x, y = alike(x, y)
    d = x - y
    xp = array_module(d)
    value, scale = reduced(xp.abs(d), reduction, max(math.prod(shape), 1))
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


def clipped_loss(loss: str, x: Array, y: Array, steepness: float, limit: float, reduction: str) -> OpResult:
    """The loss whose slope in d = x - y is ``steepness`` d, clipped to +-``limit``."""
    shape = check_one_shape(loss, x, y)
    check_reduction(loss, reduction)
    x, y = alike(x, y)
    if loops.can_take(x, y) and reduction != "none":
        each = np.empty(1, x.dtype)  # their sum
        slope = of_elements(partial(write_slope, each), x, y, settings=[steepness, limit, 0.5 / steepness])
    else:
        d = x - y
        slope = (d * steepness).clip(-limit, limit)
        each = slope * (d - slope * (0.5 / steepness))
    value, scale = reduced(each, reduction, max(math.prod(shape), 1))
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


def check_one_shape(loss: str, x: Array, y: Array) -> tuple[int, ...]:
    """The shape of both arrays; raises ValueError where they differ."""
    if shape_of(x) != shape_of(y):
        raise ValueError(
            f"{loss} compares arrays of one shape, got {shape_of(x)} and {shape_of(y)}; reshape one of them"
        )
    return shape_of(x)
