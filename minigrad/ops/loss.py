"""Losses of classes and probabilities: each is, by default, the mean over the samples it saw.

So a share of a batch weighs in by its size. Lecture section: gradient descent. Lesson: 01_gradient_descent.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..device import Array, array_module, on_gpu
from ..op import OpResult, op, shape_of
from ..tensor import Tensor
from . import loss_kernels
from .elementwise import alike, floating, logistic
from .fast.elementwise_kernels import fits
from .half import half_in_single
from .label_loss import LabelOptions, labelled_cross_entropy, negative_log_likelihood, soft_cross_entropy
from .labels import check_kind, checked_labels
from .reduction import REDUCTIONS, check_reduction, reduced
from .regression_loss import check_one_shape


@op
@half_in_single
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
    shape, logits = shape_of(logits), floating(logits)
    plain = weight is None and ignore_index is None and not label_smoothing and reduction == "mean"
    if not plain or len(shape) > 2 or shape_of(labels) == shape != ():
        options = LabelOptions("cross_entropy", weight, ignore_index, label_smoothing, reduction)
        soft = len(shape) > 1 and shape_of(labels) == shape and labels.dtype.kind == "f"
        return (soft_cross_entropy if soft else labelled_cross_entropy)(logits, labels, options)
    xp = array_module(logits)
    if on_gpu(labels):
        check_kind(labels, shape_of(logits))
    else:
        labels = xp.asarray(checked_labels(np.asarray(labels), shape_of(logits)))
    n, classes = logits.shape
    if not n:
        return xp.zeros((), logits.dtype), (lambda g: xp.zeros((0, classes), g.dtype), None)
    if classes and fits(logits):
        return loss_kernels.cross_entropy(logits, labels)
    rows = xp.arange(n)
    shifted = logits - logits.max(axis=1, keepdims=True)  # a large common part would swallow the loss
    p = xp.exp(shifted)
    total = p.sum(axis=1, keepdims=True)
    p /= total

    def to_logits(g: Array) -> Array:
        d = p * (g / n)
        d[rows, labels] -= g / n
        return d

    return (xp.log(total[:, 0]) - shifted[rows, labels]).sum() / n, (to_logits, None)


@op
@half_in_single
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
    options = LabelOptions("nll_loss", weight, ignore_index, 0.0, reduction)
    return negative_log_likelihood(floating(log_probabilities), labels, options)


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
    xp, shape = array_module(log_probabilities), check_one_shape("kl_div", log_probabilities, targets)
    check_reduction("kl_div", reduction, (*REDUCTIONS, "batchmean"))
    log_probabilities, targets = alike(log_probabilities, targets)
    if log_target:
        logs, t = targets, xp.exp(targets)
    else:
        logs, t = xp.log(targets + (targets == 0)), targets  # 0 log 1 is 0
    difference = logs - log_probabilities
    count = shape[0] if reduction == "batchmean" and shape else math.prod(shape)
    value, scale = reduced(t * difference, reduction, max(count, 1))

    def to_targets(g: Array) -> Array:
        """Where t is 0 its slope is -inf."""
        if log_target:
            return scale(g) * (t * (difference + 1))
        with np.errstate(divide="ignore"):
            return scale(g) * (xp.log(t) + 1 - log_probabilities)

    return value, (lambda g: scale(g) * -t, to_targets)


@op
@half_in_single
def binary_cross_entropy_with_logits(
    logits: Array, targets: Array, *, weight: Any = None, pos_weight: Any = None, reduction: str = "mean"
) -> OpResult:
    """The mean over all elements of -t log p - (1 - t) log(1 - p), p = sigmoid(logits), t in [0, 1].

    ``pos_weight`` is a factor of the first term, ``weight`` one of both; they broadcast against the logits.
    The mean divides by the number of elements, as in PyTorch. Raises ValueError for shapes that differ, and
    for another reduction than "mean", "sum" and "none".
    """
    xp = array_module(logits)
    if shape_of(logits) != shape_of(targets):
        raise ValueError(
            f"binary_cross_entropy_with_logits takes logits and targets of one shape, got {shape_of(logits)} "
            f"and {shape_of(targets)}; one-hot encode integer labels, or repeat a number with np.full_like"
        )
    logits, targets = alike(logits, targets)
    if weight is not None or pos_weight is not None or reduction != "mean":
        return weighted_logistic_loss(logits, targets, weight, pos_weight, reduction)
    if fits(logits, targets):
        return loss_kernels.binary_cross_entropy_with_logits(logits, targets)
    n = max(math.prod(shape_of(logits)), 1)
    # log(1 + e^z) - t z, with the exponential always of a negative number
    each = logits * (xp.greater(logits, 0) - targets) + xp.log1p(xp.exp(-xp.abs(logits)))

    def to_logits(g: Array) -> Array:
        d = logistic(logits)
        d -= targets
        d *= g / n
        return d

    return xp.sum(each) / each.dtype.type(n), (to_logits, lambda g: logits * (g * -1 / n))


def weighted_logistic_loss(x: Array, t: Array, weight: Any, pos_weight: Any, reduction: str) -> OpResult:
    """``binary_cross_entropy_with_logits`` with its settings."""
    xp = array_module(x)
    check_reduction("binary_cross_entropy_with_logits", reduction)
    both, positive = factor_like("weight", weight, x), factor_like("pos_weight", pos_weight, x)
    terms = None if positive is None else 1 + (positive - 1) * t  # pos_weight t + 1 - t
    softplus = xp.log1p(xp.exp(-xp.abs(x))) - xp.minimum(x, 0)  # -log p
    each = (1 - t) * x + (softplus if terms is None else terms * softplus)
    value, scale = reduced(each if both is None else both * each, reduction, max(x.size, 1))

    def to_logits(g: Array) -> Array:
        d = logistic(x) - t if terms is None else 1 - t - terms * logistic(-x)
        d *= scale(g) if both is None else scale(g) * both
        return d

    def to_targets(g: Array) -> Array:
        d = -x if positive is None else (positive - 1) * softplus - x
        return d * (scale(g) if both is None else scale(g) * both)

    return value, (to_logits, to_targets)


def factor_like(name: str, factor: Any, x: Array) -> Array | None:
    """``factor`` as an array beside x, in its dtype; raises ValueError unless it broadcasts to x."""
    if factor is None:
        return None
    array = array_module(x).asarray(Tensor(factor).data, dtype=x.dtype)
    if array.ndim > x.ndim or any(
        n not in (1, m) for n, m in zip(array.shape[::-1], x.shape[::-1], strict=False)
    ):
        raise ValueError(f"{name} of shape {array.shape} does not broadcast to logits {x.shape}; reshape it")
    return array
