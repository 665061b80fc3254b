"""Losses of classes and probabilities: each is, by default, the mean over the samples it saw.

So a share of a batch weighs in by its size. Lecture section: gradient descent. Lesson: 01_gradient_descent.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..device import Array, array_module
from ..dtypes import alike, floating
from ..faster import faster
from ..half import half_in_single
from ..op import op
from ..pullback import OpResult, Pullback, shape_of
from ..tensor_base import data_of
from .elementwise import logistic
from .labels import LabelSettings
from .reduction import pair, reduced
from .softmax import log_probabilities


@op
@half_in_single
@faster
def cross_entropy(
    logits: Array,
    labels: Array,
    *,
    weight: Any = None,
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
) -> OpResult:
    """The mean of -log softmax(logits)[label] for logits (N, classes) and integer labels (N,).

    Images are logits (N, classes, ...) with labels (N, ...). Soft labels are floats of the logits' shape, the
    probabilities of classes. The settings mean what they mean in PyTorch: ``weight`` holds a factor for each
    class, labels ``ignore_index`` do not count (by default all do), and with ``label_smoothing`` s each class
    has the share s / classes in each label. The mean over integer labels divides by the sum of the factors of
    those that count, so it is NaN where none does; "sum" and "none" are the other reductions.

    Zero samples have loss 0. Raises TypeError for labels that are not integers, ValueError for shapes
    that do not fit and for a label out of range; of a label out of range that lies on a GPU, where the host
    would have to wait for it, the loss and the gradient are NaN. A backend that splits the batch
    weights parts by their samples: there the sum, and the mean with ``weight`` or ``ignore_index``, raise
    ValueError, and ``nn.CrossEntropyLoss`` is right.
    """
    settings = LabelSettings("cross_entropy", weight, ignore_index, label_smoothing, reduction)
    log_p = log_probabilities(class_scores("cross_entropy", logits), (1,))
    value, (to_log_p, to_labels) = label_loss(log_p, labels, settings)

    def to_logits(g: Array) -> Array:
        d = to_log_p(g)
        return d - array_module(d).exp(log_p) * d.sum(axis=1, keepdims=True)

    return value, (to_logits, to_labels)


@op
@half_in_single
@faster
def nll_loss(
    log_probabilities: Array,
    labels: Array,
    *,
    weight: Any = None,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> OpResult:
    """The mean of -log_probabilities[label]; these are (N, classes, ...), from log_softmax along axis 1.

    Labels, settings and errors are those of ``cross_entropy``.
    """
    settings = LabelSettings("nll_loss", weight, ignore_index, 0.0, reduction)
    return label_loss(class_scores("nll_loss", log_probabilities), labels, settings)


def class_scores(loss: str, x: Array) -> Array:
    """x (N, classes, ...) as floats; raises ValueError for one sample alone."""
    if len(shape_of(x)) < 2:
        raise ValueError(
            f"{loss} takes logits (N, classes, ...), got {shape_of(x)}; x[None] adds the axis of samples"
        )
    return floating(x)


def label_loss(
    log_p: Array, labels: Array, settings: LabelSettings
) -> tuple[Array, tuple[Pullback, Pullback | None]]:
    """-sum(t log p) over the classes, where t has the target probabilities, times the weights of classes."""
    xp, classes, smoothing = array_module(log_p), log_p.shape[1], settings.label_smoothing
    if not 0 <= smoothing <= 1:
        raise ValueError(f"label_smoothing must lie between 0 and 1, got {smoothing}")
    weights = settings.class_weights(log_p).reshape(-1, *[1] * (log_p.ndim - 2))
    is_soft = shape_of(labels) == log_p.shape and labels.dtype.kind == "f"
    if is_soft and settings.ignore_index is not None:
        raise ValueError("ignore_index is a label, and soft labels have none; leave it out")
    t = labels.astype(log_p.dtype) if is_soft else settings.one_hot(labels, log_p)
    counts = 1 if is_soft else t.sum(axis=1, keepdims=True)  # 0 where a label is ignored
    divisor = None if is_soft else settings.divisor(weights * t)
    t = weights * ((1 - smoothing) * t + smoothing / max(classes, 1) * counts)
    each = (t * xp.where(t == 0, 0, -log_p)).sum(axis=1)  # 0 log 0 is 0
    value, scale = reduced(settings.loss, each, settings.reduction, divisor)

    def factor(g: Array) -> Array:
        return scale(g)[:, None] if settings.reduction == "none" else scale(g)

    def to_labels(g: Array) -> Array:
        return weights * log_p * ((smoothing - 1) * factor(g))

    return value, (lambda g: -t * factor(g), to_labels if is_soft else None)


@op
@half_in_single
def kl_div(
    log_probabilities: Array, targets: Array, *, reduction: str = "mean", log_target: bool = False
) -> OpResult:
    """The mean over all elements of t (log t - log p), from log p and the probabilities t, of one shape.

    It is 0 where t is 0. With ``log_target`` the targets are log t. "batchmean" divides the sum by the
    samples, which is the Kullback-Leibler divergence; "sum" and "none" are the other reductions. Raises
    ValueError for shapes that differ.
    """
    xp, (log_p, targets) = array_module(log_probabilities), pair("kl_div", log_probabilities, targets)
    t = xp.exp(targets) if log_target else targets
    with np.errstate(divide="ignore"):
        difference = (targets if log_target else xp.log(t)) - log_p
    samples = log_p.dtype.type(max(len(log_p), 1)) if reduction == "batchmean" and log_p.ndim else None
    each = t * xp.where(t == 0, 0, difference)
    value, scale = reduced("kl_div", each, reduction, samples, "batchmean")

    def to_targets(g: Array) -> Array:
        slope = difference + 1  # -inf where t is 0
        return scale(g) * (t * slope if log_target else slope)

    return value, (lambda g: scale(g) * -t, to_targets)


@op
@half_in_single
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

    def to_logits(g: Array) -> Array:
        return scale(g) * both * ((1 - t) * logistic(x) - positive * t * logistic(-x))

    return value, (to_logits, lambda g: scale(g) * both * (positive * of_ones - of_zeros))


def factor_like(name: str, factor: Any, x: Array) -> Array | int:
    """``factor`` as an array beside x, in its dtype; None is 1. Raises ValueError unless it broadcasts."""
    if factor is None:
        return 1
    array = array_module(x).asarray(data_of(factor), dtype=x.dtype)
    if array.ndim > x.ndim or any(
        n not in (1, m) for n, m in zip(array.shape[::-1], x.shape[::-1], strict=False)
    ):
        raise ValueError(f"{name} of shape {array.shape} does not broadcast to logits {x.shape}; reshape it")
    return array
