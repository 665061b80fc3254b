"""Losses of labels without an array of targets, or by two kernels on a GPU.

Lecture section: gradient descent. Lesson: 02_backpropagation, by ``fast/__init__.py``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...device import Array, array_module, on_gpu
from ...dtypes import floating
from ...faster import form_of
from ...pullback import OpResult, shape_of
from ..cross_entropy import are_soft, checked_labels, class_weights, cross_entropy, nll_loss, sum_of_factors
from ..loss import reduced
from . import loss_kernels
from .elementwise_kernels import can_take


@form_of(cross_entropy)
def cross_entropy_from_the_softmax(
    logits: Array,
    labels: Array,
    *,
    weight: Any = None,
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
) -> OpResult:
    """The loss of a row or pixel from its label's logit and, with smoothing, from a share of all logits."""
    shape, s = shape_of(logits), label_smoothing
    if len(shape) < 2 or 0 in shape or not 0 <= s < 1:
        return NotImplemented
    x = floating(logits)
    if are_soft(labels, x):
        readable = on_gpu(x) or ignore_index is not None
        return NotImplemented if readable else of_probabilities(x, labels, weight, s, reduction)
    if on_gpu(x):
        plain = len(shape) == 2 and weight is None and ignore_index is None and not s and reduction == "mean"
        return cross_entropy_on_gpu(x, labels) if plain and can_take(x) else NotImplemented
    own, counts, factors, divisor = places("cross_entropy", labels, x, weight, ignore_index, reduction)
    shifted, p, log_total = softmax_of(x)
    each = weighted(factors, log_total - shifted[own])
    if not s:
        value, scale = reduced("cross_entropy", each, reduction, divisor)

        def to_logits(g: np.ndarray) -> np.ndarray:
            share = times(factors, scale(g))
            d = p * column(share)
            d[own] -= share
            return d

        return value, (to_logits, None)
    weights = class_weights("cross_entropy", weight, x).reshape(-1, *[1] * (x.ndim - 2))
    if not weights.all():  # times an infinite logit it would be NaN
        return NotImplemented
    of_all = weights.sum() * log_total - (shifted if weight is None else weights * shifted).sum(axis=1)
    each = (1 - s) * each + s / shape[1] * weighted(counts, of_all)
    value, scale = reduced("cross_entropy", each, reduction, divisor)

    def to_smoothed_logits(g: np.ndarray) -> np.ndarray:
        g = scale(g)
        share, rest = (1 - s) * times(factors, g), s / shape[1] * times(counts, g)
        d = p * column(share + weights.sum() * rest)
        d -= weights * column(rest)
        d[own] -= share
        return d

    return value, (to_smoothed_logits, None)


def of_probabilities(x: np.ndarray, labels: np.ndarray, weight: Any, s: float, reduction: str) -> OpResult:
    """The gradient of a row or pixel is its softmax times the sum of the target, less the target."""
    weights = class_weights("cross_entropy", weight, x).reshape(-1, *[1] * (x.ndim - 2))
    t = labels.astype(x.dtype, copy=False)
    t = (1 - s) * t + s / x.shape[1] if s else t
    t = t if weight is None else weights * t
    log_p, p, log_total = softmax_of(x)
    log_p -= log_total[:, None]
    with np.errstate(invalid="ignore"):
        each = -(t * log_p).sum(axis=1)
    if not np.isfinite(each).all():  # 0 log 0 is 0
        return NotImplemented
    value, scale = reduced("cross_entropy", each, reduction)

    def to_logits(g: np.ndarray) -> np.ndarray:
        d = p * t.sum(axis=1)[:, None]
        d -= t
        d *= column(scale(g))
        return d

    return value, (to_logits, lambda g: weights * log_p * ((s - 1) * column(scale(g))))


@form_of(nll_loss)
def nll_loss_at_labels(
    log_probabilities: Array,
    labels: Array,
    *,
    weight: Any = None,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> OpResult:
    """Each row or pixel takes the logarithm at its label; no other has a gradient."""
    shape = shape_of(log_probabilities)
    if on_gpu(log_probabilities) or len(shape) < 2 or 0 in shape or shape_of(labels) == shape:
        return NotImplemented
    x = floating(log_probabilities)
    own, _, factors, divisor = places("nll_loss", labels, x, weight, ignore_index, reduction)
    value, scale = reduced("nll_loss", weighted(factors, -x[own]), reduction, divisor)

    def to_x(g: np.ndarray) -> np.ndarray:
        d = np.zeros(x.shape, x.dtype)
        d[own] = -times(factors, scale(g))
        return d

    return value, (to_x, None)


def cross_entropy_on_gpu(logits: Array, labels: Array) -> OpResult:
    labels = checked_labels(labels if on_gpu(labels) else np.asarray(labels), logits.shape)
    return loss_kernels.cross_entropy(logits, array_module(logits).asarray(labels))


def places(
    loss: str, labels: Array, x: np.ndarray, weight: Any, ignore_index: int | None, reduction: str
) -> tuple[tuple[np.ndarray, ...], Array | None, Array | None, Array | None]:
    """The index of the labels' elements in x (N, classes, ...), which labels count, factors, and a divisor.

    None for the labels that count, and for the factors, is 1 for each of them.
    """
    labels, counts = np.asarray(labels), None
    if ignore_index is not None:
        used = labels != ignore_index
        labels, counts = labels * used, used.astype(x.dtype)
    labels = checked_labels(labels, x.shape, loss)
    factors = counts if weight is None else times(counts, class_weights(loss, weight, x)[labels])
    divisor = None if factors is None else sum_of_factors(loss, factors, weight is not None, reduction)
    if labels.ndim == 1:
        return (np.arange(len(labels)), labels), counts, factors, divisor
    rows, *pixels = np.indices(labels.shape, sparse=True)
    return (rows, labels, *pixels), counts, factors, divisor


def softmax_of(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x (N, classes, ...) less the largest of its row, the softmax, and the logarithm of its denominator."""
    shifted = x - x.max(axis=1, keepdims=True)  # a large common part would swallow the loss
    p = np.exp(shifted)
    total = p.sum(axis=1)
    p /= total[:, None]
    return shifted, p, np.log(total)


def times(factors: Array | None, x: np.ndarray) -> np.ndarray:
    return x if factors is None else factors * x


def weighted(factors: Array | None, losses: np.ndarray) -> np.ndarray:
    """factors * losses, which is 0 where a factor is, also of a loss that is infinite or NaN."""
    return losses if factors is None else factors * np.where(factors == 0, 0, losses)


def column(x: np.ndarray) -> np.ndarray:
    """Numbers of rows or pixels, with an axis for the classes; one number for all stays as it is."""
    return x[:, None] if x.ndim else x
