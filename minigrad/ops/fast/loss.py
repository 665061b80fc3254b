"""Losses of classes and probabilities without settings: their labels as places, or a few kernels on a GPU.

Lecture section: gradient descent. Lesson: 02_backpropagation, by ``fast/__init__.py``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...device import Array, array_module, on_gpu
from ...dtypes import alike, floating
from ...faster import form_of
from ...pullback import OpResult, shape_of
from ..elementwise import logistic
from ..labels import LabelSettings, check_kind, checked_labels
from ..loss import (
    binary_cross_entropy_with_logits,
    cross_entropy,
    nll_loss,
)
from ..reduction import reduced
from . import loss_kernels
from .elementwise_kernels import fits


@form_of(cross_entropy)
def cross_entropy_at_labels(
    logits: Array,
    labels: Array,
    *,
    weight: Any = None,
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
) -> OpResult:
    """The loss of a row or pixel from its label's logit, where alone the gradient is not the softmax's."""
    shape = shape_of(logits)
    if len(shape) < 2 or 0 in shape or label_smoothing or shape_of(labels) == shape:
        return NotImplemented
    x = floating(logits)
    if on_gpu(x):
        plain = len(shape) == 2 and weight is None and ignore_index is None and reduction == "mean"
        return cross_entropy_on_gpu(x, labels) if plain and fits(x) else NotImplemented
    settings = LabelSettings("cross_entropy", weight, ignore_index, 0.0, reduction)
    own, factors, divisor = places(labels, x, settings)
    shifted = x - x.max(axis=1, keepdims=True)  # a large common part would swallow the loss
    p = np.exp(shifted)
    total = p.sum(axis=1)
    p /= total[:, None]
    value, scale = reduced(
        "cross_entropy", weighted(factors, np.log(total) - shifted[own]), reduction, divisor
    )

    def to_logits(g: np.ndarray) -> np.ndarray:
        share = factors * scale(g)
        d = p * (share[:, None] if share.ndim else share)
        d[own] -= share
        return d

    return value, (to_logits, None)


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
    settings = LabelSettings("nll_loss", weight, ignore_index, 0.0, reduction)
    own, factors, divisor = places(labels, x, settings)
    value, scale = reduced("nll_loss", weighted(factors, -x[own]), reduction, divisor)

    def to_x(g: np.ndarray) -> np.ndarray:
        d = np.zeros(x.shape, x.dtype)
        d[own] = -factors * scale(g)
        return d

    return value, (to_x, None)


def cross_entropy_on_gpu(logits: Array, labels: Array) -> OpResult:
    if on_gpu(labels):
        check_kind(labels, logits.shape)
    else:
        labels = array_module(logits).asarray(checked_labels(np.asarray(labels), logits.shape))
    return loss_kernels.cross_entropy(logits, labels)


def places(
    labels: Array, x: np.ndarray, settings: LabelSettings
) -> tuple[tuple[np.ndarray, ...], Array | int, Array | None]:
    """The index of the labels' elements in x (N, classes, ...), their factors, and the divisor of a mean."""
    labels, factors = np.asarray(labels), 1
    if settings.ignore_index is not None:
        counts = labels != settings.ignore_index
        labels, factors = labels * counts, counts.astype(x.dtype)
    labels = checked_labels(labels, x.shape, settings.loss)
    if settings.weight is not None:
        factors = factors * settings.class_weights(x)[labels]
    divisor = None if isinstance(factors, int) else settings.divisor(factors)
    if labels.ndim == 1:
        return (np.arange(len(labels)), labels), factors, divisor
    rows, *pixels = np.indices(labels.shape, sparse=True)
    return (rows, labels, *pixels), factors, divisor


def weighted(factors: Array | int, losses: np.ndarray) -> np.ndarray:
    """factors * losses, which is 0 where a factor is, also of a loss that is infinite or NaN."""
    return losses if isinstance(factors, int) else factors * np.where(factors == 0, 0, losses)


@form_of(binary_cross_entropy_with_logits)
def binary_cross_entropy_with_logits_in_one_pass(
    logits: Array, targets: Array, *, weight: Any = None, pos_weight: Any = None, reduction: str = "mean"
) -> OpResult:
    """log(1 + e^z) - t z, with the exponential always of a negative number."""
    plain = weight is None and pos_weight is None and reduction == "mean"
    if not plain or shape_of(logits) != shape_of(targets):
        return NotImplemented
    logits, targets = alike(logits, targets)
    if fits(logits, targets):
        return loss_kernels.binary_cross_entropy_with_logits(logits, targets)
    xp, n = array_module(logits), max(logits.size, 1)
    each = logits * (xp.greater(logits, 0) - targets) + xp.log1p(xp.exp(-xp.abs(logits)))

    def to_logits(g: Array) -> Array:
        d = logistic(logits)
        d -= targets
        d *= g / n
        return d

    return xp.sum(each) / each.dtype.type(n), (to_logits, lambda g: logits * (g * -1 / n))
