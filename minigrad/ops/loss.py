"""Losses of two arrays of one shape: by default each is the mean over elements.

So a share of a batch weighs in by its size. Lecture section: back-propagation. Lesson: 02_backpropagation.

>>> from minigrad import ops
>>> ops.mse([1.0, 2.0], [1.0, 4.0]).item()
2.0
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..forward_pass import check_whole_batch
from ..op import Array, OpResult, alike, array_module, check_choice, faster, loss_in_single, op, shape_of
from ..tensor_base import data_of
from .elementwise import broadcasts, logistic
from .selection import masked


def pair(loss: str, x: Array, y: Array) -> tuple[Array, Array]:
    """x and y as floats of one dtype; raises ValueError where their shapes differ."""
    if shape_of(x) != shape_of(y):
        raise ValueError(
            f"{loss} compares arrays of one shape, got {shape_of(x)} and {shape_of(y)}; reshape one of them"
        )
    return alike(x, y)


def reduced(
    loss: str, each: Array, reduction: str, divisor: Array | int | None = None, *others: str
) -> tuple[Array, Callable[[Array], Array]]:
    """The value of a loss, from the losses of its elements, and g -> the factor of their gradients.

    A mean, and ``others`` by their name, divides the sum by ``divisor``, by default the number of elements; a
    0 in an array makes it NaN, with the gradient 0. Raises ValueError for an unknown ``reduction``, and for
    the sum over a part of a batch.
    """
    if reduction != "mean":
        check_choice("reduction", reduction, ("mean", "sum", "none", *others))
    if reduction == "none":
        return each, lambda g: g
    total = each.sum()
    if reduction == "sum":
        check_whole_batch(f'{loss} with reduction="sum"')
        return total, lambda g: g
    if divisor is None or isinstance(divisor, int):
        n = each.dtype.type(max(each.size if divisor is None else divisor, 1))
        return total / n, lambda g: g / n
    with np.errstate(invalid="ignore"):  # 0 / 0
        return total / divisor, lambda g: g / (divisor + (divisor == 0))


@op
@loss_in_single
def mse(x: Array, y: Array, *, reduction: str = "mean") -> OpResult:
    """The mean of (x - y) ** 2 over all elements of two arrays of one shape.

    y is taken in the dtype of x, so that float64 targets do not widen what a float32 model computes; of
    integers they are floats. "sum" and "none" are the other reductions. Raises ValueError for shapes that
    differ, for an unknown reduction, and for the sum where a backend has split the batch; as all losses do.
    """
    x, y = pair("mse", x, y)
    d = x - y
    value, scale = reduced("mse", d * d, reduction)
    return value, (lambda g: d * (scale(g) * 2), lambda g: d * (scale(g) * -2))


@op
@loss_in_single
def l1_loss(x: Array, y: Array, *, reduction: str = "mean") -> OpResult:
    """The mean of |x - y| over all elements, with gradient 0 where they are equal."""
    xp, (x, y) = array_module(x), pair("l1_loss", x, y)
    d = x - y
    value, scale = reduced("l1_loss", xp.abs(d), reduction)
    return value, (lambda g: xp.sign(d) * scale(g), lambda g: xp.sign(d) * -scale(g))


@op
@loss_in_single
def huber_loss(x: Array, y: Array, *, delta: float = 1.0, reduction: str = "mean") -> OpResult:
    """The mean of d ** 2 / 2 where |d| <= delta, else delta (|d| - delta / 2), with d = x - y (Huber 1964).

    Raises ValueError unless delta is positive, too.
    """
    if not delta > 0:
        raise ValueError(f"delta must be positive, got {delta}")
    return clipped_loss("huber_loss", x, y, 1.0, float(delta), reduction)


@op
@loss_in_single
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


@op
@loss_in_single
def kl_div(
    log_probabilities: Array, targets: Array, *, reduction: str = "mean", log_target: bool = False
) -> OpResult:
    """The mean over all elements of t (log t - log p), from log p and the probabilities t, of one shape.

    It is 0 where t is 0. With ``log_target`` the targets are log t. "batchmean" divides the sum by the
    samples, which is the Kullback-Leibler divergence; "sum" and "none" are the other reductions. Raises
    ValueError for shapes that differ.
    """
    xp, (log_p, targets) = array_module(log_probabilities), pair("kl_div", log_probabilities, targets)
    if log_target:
        t, difference = xp.exp(targets), targets - log_p
    else:
        with np.errstate(divide="ignore"):
            t, difference = targets, xp.log(targets) - log_p
    count = len(log_p) if reduction == "batchmean" and log_p.ndim else None
    value, scale = reduced("kl_div", shares(t, difference), reduction, count, "batchmean")

    return value, (
        lambda g: t * -scale(g),
        lambda g: scale(g) * (t * (difference + 1) if log_target else difference + 1),  # -inf where t is 0
    )


@faster
def shares(t: Array, x: Array) -> Array:
    """t * x, which is 0 where t is, also where x is infinite."""
    return t * masked(x, t != 0)


@op
@loss_in_single
@faster
def binary_cross_entropy_with_logits(
    logits: Array, targets: Array, *, weight: Any = None, pos_weight: Any = None, reduction: str = "mean"
) -> OpResult:
    """The mean over all elements of -t log p - (1 - t) log(1 - p), p = sigmoid(logits), t in [0, 1].

    ``pos_weight`` is a factor of the first term, ``weight`` one of both; they broadcast against the logits.
    The mean divides by the number of elements, as in PyTorch. Raises ValueError for shapes that differ, and
    for another reduction than "mean", "sum" and "none".
    """
    if shape_of(logits) != shape_of(targets):
        raise ValueError(
            f"binary_cross_entropy_with_logits takes logits and targets of one shape, got {shape_of(logits)} "
            f"and {shape_of(targets)}; one-hot encode integer labels, or repeat a number with np.full_like"
        )
    xp, (x, t) = array_module(logits), alike(logits, targets)
    both, positive = factor_like("weight", weight, x), factor_like("pos_weight", pos_weight, x)
    tail = xp.log1p(xp.exp(-xp.abs(x)))
    of_ones, of_zeros = tail - xp.minimum(x, 0), tail + xp.maximum(x, 0)  # -log p and -log(1 - p)
    each = both * (positive * t * of_ones + (1 - t) * of_zeros)
    value, scale = reduced("binary_cross_entropy_with_logits", each, reduction)
    return value, (
        lambda g: scale(g) * both * ((1 - t) * logistic(x) - positive * t * logistic(-x)),
        lambda g: scale(g) * both * (positive * of_ones - of_zeros),
    )


def factor_like(name: str, factor: Any, x: Array) -> Array | int:
    """``factor`` as an array in the dtype of x; None is 1. Raises ValueError unless it broadcasts."""
    if factor is None:
        return 1
    array = array_module(x).asarray(data_of(factor), dtype=x.dtype)
    if not broadcasts(array.shape, x.shape):
        raise ValueError(f"{name} of shape {array.shape} does not broadcast to logits {x.shape}; reshape it")
    return array
