"""Losses: each is the mean over the samples it saw, so a share of a batch weighs in by its size.

Lecture section: back-propagation. Lesson: 02_backpropagation.
"""

from __future__ import annotations

import math

import numpy as np

from ..device import Array, array_module, on_gpu
from ..op import OpResult, op, shape_of
from . import loss_kernels
from .elementwise import logistic
from .elementwise_kernels import fits


@op
def cross_entropy(logits: Array, labels: Array) -> OpResult:
    """The mean of -log softmax(logits)[label] for logits (N, classes) and integer labels (N,).

    Zero samples have loss 0. Raises TypeError for labels that are not integers, ValueError for shapes
    that do not fit and for a label out of range; of a label out of range that lies on a GPU, where the host
    would have to wait for it, the loss and the gradient are NaN.
    """
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
    if on_gpu(labels):
        total = xp.where(((labels >= 0) & (labels < classes))[:, None], total, xp.nan)
    p /= total

    def to_logits(g: Array) -> Array:
        d = p * (g / n)
        d[rows, labels] -= g / n
        return d

    return (xp.log(total[:, 0]) - shifted[rows, labels]).sum() / n, (to_logits, None)


def checked_labels(labels: Array, logits: tuple[int, ...]) -> Array:
    """``labels``; raises ValueError or TypeError unless they are classes of logits of this shape."""
    check_kind(labels, logits)
    n, classes = logits
    if n and not (int(labels.min()) >= 0 and int(labels.max()) < classes):
        raise ValueError(
            f"labels run from {int(labels.min())} to {int(labels.max())}, the logits have classes "
            f"0 to {classes - 1}; correct the labels or give the last layer more outputs"
        )
    return labels


def check_kind(labels: Array, logits: tuple[int, ...]) -> None:
    """Raise ValueError or TypeError unless ``labels`` are integers, one for each row of the logits."""
    if len(logits) != 2 or labels.shape != logits[:1]:
        raise ValueError(
            f"cross_entropy takes logits (N, classes) and labels (N,), got {logits} "
            f"and {labels.shape}; pass one integer label per row"
        )
    if labels.dtype.kind not in "iu":
        raise TypeError(
            f"cross_entropy needs integer labels, got {labels.dtype}; convert them with .astype(int)"
        )


@op
def mse(x: Array, y: Array) -> OpResult:
    """The mean of (x - y) ** 2 over all elements of two arrays of one shape."""
    if shape_of(x) != shape_of(y):
        raise ValueError(
            f"mse compares arrays of one shape, got {shape_of(x)} and {shape_of(y)}; reshape one of them"
        )
    d, n = x - y, max(math.prod(shape_of(x)), 1)
    return array_module(d).sum(d * d) / n, (lambda g: d * (g * 2 / n), lambda g: d * (g * -2 / n))


@op
def binary_cross_entropy_with_logits(logits: Array, targets: Array) -> OpResult:
    """The mean over all elements of -t log p - (1 - t) log(1 - p), p = sigmoid(logits), t in [0, 1]."""
    xp = array_module(logits)
    if shape_of(logits) != shape_of(targets):
        raise ValueError(
            f"binary_cross_entropy_with_logits takes logits and targets of one shape, got {shape_of(logits)} "
            f"and {shape_of(targets)}; one-hot encode integer labels, or repeat a number with np.full_like"
        )
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

    return xp.sum(each) / n, (to_logits, lambda g: logits * (g * -1 / n))
