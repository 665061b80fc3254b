"""Losses of labels: means over samples, or pixels, of logits (N, classes) or (N, classes, ...).

Lecture section: gradient descent. Lesson: 01_gradient_descent.

>>> from minigrad import ops
>>> round(ops.cross_entropy([[0.0, 0.0]], [1]).item(), 3)
0.693
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..forward_pass import check_whole_batch
from ..op import Array, OpResult, Pullback, array_module, faster, floating, loss_in_single, op, shape_of
from ..tensor_base import data_of
from .loss import reduced, shares
from .softmax import log_probabilities


@op
@loss_in_single
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
    probabilities of classes. The settings are PyTorch's: ``weight`` holds a factor for each class, labels
    ``ignore_index`` do not count, and with ``label_smoothing`` s each class has the share s / classes in each
    label. The mean over integer labels divides by the sum of the factors of those that count, and is NaN
    where none does; "sum" and "none" are the other reductions. Zero samples have loss 0.

    Raises TypeError for labels that are not integers, ValueError for shapes that do not fit and for a label
    out of range; where this lies on a GPU, so that the host would have to wait for it, the loss and the
    gradient are NaN. Where a backend splits the batch, the sum and the mean with ``weight`` or
    ``ignore_index`` raise ValueError, and ``nn.CrossEntropyLoss`` is right.
    """
    log_p = log_probabilities(class_scores("cross_entropy", logits), (1,))
    settings = weight, ignore_index, label_smoothing, reduction
    value, (to_log_p, to_labels) = label_loss("cross_entropy", log_p, labels, *settings)

    def to_logits(g: Array) -> Array:
        d = to_log_p(g)
        return d - array_module(d).exp(log_p) * d.sum(axis=1, keepdims=True)

    return value, (to_logits, to_labels)


@op
@loss_in_single
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

    ``cross_entropy`` says what labels and settings there are, and which errors.
    """
    log_p = class_scores("nll_loss", log_probabilities)
    return label_loss("nll_loss", log_p, labels, weight, ignore_index, 0.0, reduction)


def class_scores(loss: str, x: Array) -> Array:
    """x (N, classes, ...) as floats; raises ValueError for one sample alone."""
    if len(shape_of(x)) < 2:
        raise ValueError(
            f"{loss} takes logits (N, classes, ...), got {shape_of(x)}; x[None] adds the axis of samples"
        )
    return floating(x)


def label_loss(
    loss: str, log_p: Array, labels: Array, *settings: Any
) -> tuple[Array, tuple[Pullback, Pullback | None]]:
    """-sum(t log p) over the classes, where t has the target probabilities, times the weights of classes.

    The settings are ``cross_entropy``'s, in their order.
    """
    weight, ignore_index, smoothing, reduction = settings
    if not 0 <= smoothing <= 1:
        raise ValueError(f"label_smoothing must lie between 0 and 1, got {smoothing}")
    weights = class_weights(loss, weight, log_p).reshape(-1, *[1] * (log_p.ndim - 2))
    is_soft = are_soft(labels, log_p)
    if is_soft and ignore_index is not None:
        raise ValueError("ignore_index is a label, and soft labels have none; leave it out")
    t = labels.astype(log_p.dtype) if is_soft else one_hot(loss, labels, log_p, ignore_index)
    counts = 1 if is_soft else t.sum(axis=1, keepdims=True)  # 0 where a label is ignored
    all_count = is_soft or weight is None and ignore_index is None
    divisor = None if all_count else sum_of_factors(loss, weights * t, weight is not None, reduction)
    t = weights * ((1 - smoothing) * t + smoothing / max(log_p.shape[1], 1) * counts)
    each = shares(t, -log_p).sum(axis=1)  # 0 log 0 is 0
    value, scale = reduced(loss, each, reduction, divisor)

    def factor(g: Array) -> Array:
        return scale(g)[:, None] if reduction == "none" else scale(g)

    to_labels = (lambda g: weights * log_p * ((smoothing - 1) * factor(g))) if is_soft else None
    return value, (lambda g: -t * factor(g), to_labels)


def class_weights(loss: str, weight: Any, x: Array) -> Array:
    """The weight of each class of x (N, classes, ...), by default 1."""
    xp, classes = array_module(x), x.shape[1]
    weights = xp.ones(classes, x.dtype) if weight is None else data_of(weight)
    if weights.shape != (classes,):
        raise ValueError(
            f"{loss} needs a weight for each of {classes} classes, got the shape {weights.shape}"
        )
    return xp.asarray(weights, x.dtype)


def sum_of_factors(loss: str, factors: Array, weighted: bool, reduction: str) -> Array | None:
    """What a mean divides by: the sum of the factors of labels; None where there is no label."""
    if not factors.size:
        return None
    if reduction == "mean":
        check_whole_batch(f"the mean {loss} with {'weight' if weighted else 'ignore_index'}")
    return factors.sum()


def are_soft(labels: Array, x: Array) -> bool:
    """Whether labels are the probabilities of the classes of x (N, classes, ...)."""
    return shape_of(labels) == shape_of(x) != () and labels.dtype.kind == "f"


def one_hot(loss: str, labels: Array, x: Array, ignore_index: int | None) -> Array:
    """An array like x (N, classes, ...), 1 at each label's class and else 0, also where it is ignored.

    Raises as ``checked_labels``; labels on a GPU that are no class are NaN.
    """
    xp, classes = array_module(x), x.shape[1]
    labels = labels if hasattr(labels, "dtype") else np.asarray(labels)
    counts = labels == labels if ignore_index is None else labels != ignore_index
    checked_labels(labels * counts, x.shape, loss)
    labels, counts = xp.asarray(labels)[:, None], xp.asarray(counts)[:, None]
    is_class = (labels >= 0) & (labels < classes) | ~counts
    numbers = xp.arange(classes).reshape(-1, *[1] * (x.ndim - 2))
    return (counts & (labels == numbers)) + xp.where(is_class, 0, math.nan).astype(x.dtype)


def checked_labels(labels: Array, logits: tuple[int, ...], loss: str = "cross_entropy") -> Array:
    """``labels``; raises ValueError or TypeError unless they are a class for each row or pixel of logits.

    Whether labels on a GPU are classes is not looked at, as the host would have to wait for it.
    """
    if len(logits) < 2 or labels.shape != (logits[0], *logits[2:]):
        raise ValueError(
            f"{loss} takes logits (N, classes, ...) and labels (N, ...), got {logits} and {labels.shape}; "
            "pass one integer label per row or pixel, or probabilities of the logits' shape"
        )
    if labels.dtype.kind not in "iu":
        raise TypeError(f"{loss} needs integer labels, got {labels.dtype}; convert them with .astype(int)")
    on_host = array_module(labels) is np
    if on_host and labels.size and not (int(labels.min()) >= 0 and int(labels.max()) < logits[1]):
        raise ValueError(
            f"labels run from {int(labels.min())} to {int(labels.max())}, the logits have classes "
            f"0 to {logits[1] - 1}; correct the labels or give the last layer more outputs"
        )
    return labels
