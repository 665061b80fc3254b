"""Losses of classes with all options: images, weights of classes, ignored, smoothed and soft labels.

Lecture section: gradient descent. Lesson: 01_gradient_descent, by ``loss.py``. Arrays are (N, classes, M),
with M = 1 for rows of logits and the number of pixels for images.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from ..device import Array, array_module, on_gpu
from ..forward_pass import check_whole_batch
from ..op import OpResult
from ..tensor import Tensor
from .labels import check_kind, checked_labels, classes_of
from .reduction import check_reduction, reduced


class LabelOptions(NamedTuple):
    """The settings of ``loss``, as ``cross_entropy`` documents them."""

    loss: str
    weight: Any = None
    ignore_index: int | None = None
    label_smoothing: float = 0.0
    reduction: str = "mean"

    def class_weights(self, x: Array) -> Array:
        """The weights of classes on the device of x (N, classes, ...) and in its dtype, by default 1.

        Raises ValueError for settings that are none.
        """
        xp, classes = array_module(x), x.shape[1]
        check_reduction(self.loss, self.reduction)
        if not 0 <= self.label_smoothing <= 1:
            raise ValueError(f"label_smoothing must lie between 0 and 1, got {self.label_smoothing}")
        if self.weight is None:
            return xp.ones(classes, x.dtype)
        weight = xp.asarray(Tensor(self.weight).data, dtype=x.dtype)
        if weight.shape != (classes,):
            raise ValueError(
                f"{self.loss} needs a weight for each of {classes} classes, got the shape {weight.shape}"
            )
        return weight


class Targets(NamedTuple):
    """Labels (N, M), 0 where they are ignored, with the factor (N, M) of each loss.

    ``counted`` (N, M) is 0 where the label is ignored, else 1; a mean divides by ``divisor``.
    """

    labels: Array
    factor: Array
    counted: Array
    divisor: Array | int


def targets(labels: Array, x: Array, weights: Array, options: LabelOptions) -> Targets:
    """Those of labels (N, ...) for x (N, classes, ...), checked as ``cross_entropy`` says."""
    xp, classes, m = array_module(x), x.shape[1], math.prod(x.shape[2:])
    labels = labels if on_gpu(labels) else np.asarray(labels)
    check_kind(labels, x.shape, options.loss)
    counted = xp.ones(labels.shape, x.dtype)
    if options.ignore_index is not None:
        used = labels != options.ignore_index
        counted, labels = xp.asarray(used, dtype=x.dtype), labels * used
    if on_gpu(labels):
        is_class = (labels >= 0) & (labels < classes)
        labels, valid = labels * is_class, xp.where(is_class, counted, math.nan).astype(x.dtype)
    else:
        labels, valid = xp.asarray(checked_labels(labels, x.shape, options.loss)), counted
    factor = valid if options.weight is None else valid * weights[labels]
    divisor = max(labels.size, 1)
    if labels.size and (options.weight is not None or options.ignore_index is not None):
        if options.reduction == "mean":
            setting = "ignore_index" if options.weight is None else "weight"
            check_whole_batch(f"the mean {options.loss} with {setting}")
        divisor = xp.sum(factor)
    labels, factor, counted = (a.reshape(len(x), m) for a in (labels, factor, counted))
    return Targets(labels, factor, counted, divisor)


def labelled_cross_entropy(logits: Array, labels: Array, options: LabelOptions) -> OpResult:
    """``cross_entropy`` for integer labels."""
    classes, shape = classes_of(logits.shape, options.loss), logits.shape
    weights, smoothing = options.class_weights(logits), options.label_smoothing
    y, factor, counted, divisor = targets(labels, logits, weights, options)
    own = places_of(y)
    shifted, p, log_total = softmax_of(logits)
    each = factor * (log_total - shifted[own])
    total = weights.sum()
    if smoothing:
        weighted = shifted if options.weight is None else weights[:, None] * shifted
        of_all = total * log_total - weighted.sum(axis=1)
        each = (1 - smoothing) * each + (smoothing / classes) * (counted * of_all)
    del shifted
    value, scale = reduced(each.reshape(labels.shape), options.reduction, divisor)

    def to_logits(g: Array) -> Array:
        scaled = spread(scale(g), p)
        share = factor * scaled
        if smoothing:
            share *= 1 - smoothing
            rest = counted * scaled * (smoothing / classes)
            d = p * (share + total * rest)[:, None] - weights[:, None] * rest[:, None]
        else:
            d = p * share[:, None]
        d[own] -= share
        return d.reshape(shape)

    return value, (to_logits, None)


def soft_cross_entropy(logits: Array, probabilities: Array, options: LabelOptions) -> OpResult:
    """``cross_entropy`` for the probabilities of classes, (N, classes, ...)."""
    classes, shape = logits.shape[1], logits.shape
    if options.ignore_index is not None:
        raise ValueError("ignore_index is a label, and soft labels have none; leave it out")
    weights, smoothing = options.class_weights(logits)[:, None], options.label_smoothing
    shifted, p, log_total = softmax_of(logits)
    shifted -= log_total[:, None]
    t = probabilities.reshape(p.shape).astype(p.dtype, copy=False)
    if smoothing:
        t = t * (1 - smoothing) + smoothing / classes
    if options.weight is not None:
        t = weights * t
    divisor = max(math.prod(shape) // max(classes, 1), 1)
    each = (t * shifted).sum(axis=1) * -1
    value, scale = reduced(each.reshape(shape[0], *shape[2:]), options.reduction, divisor)

    def to_logits(g: Array) -> Array:
        d = p * t.sum(axis=1)[:, None]
        d -= t
        d *= spread(scale(g), p)[:, None]
        return d.reshape(shape)

    def to_probabilities(g: Array) -> Array:
        return (shifted * weights * (spread(scale(g), p) * (smoothing - 1))[:, None]).reshape(shape)

    return value, (to_logits, to_probabilities)


def negative_log_likelihood(log_probabilities: Array, labels: Array, options: LabelOptions) -> OpResult:
    """``nll_loss``."""
    classes_of(log_probabilities.shape, options.loss)
    x, shape = rows(log_probabilities), log_probabilities.shape
    weights = options.class_weights(x)
    y, factor, _, divisor = targets(labels, log_probabilities, weights, options)
    own = places_of(y)
    value, scale = reduced((factor * x[own] * -1).reshape(labels.shape), options.reduction, divisor)

    def to_x(g: Array) -> Array:
        d = array_module(g).zeros(x.shape, x.dtype)
        d[own] = factor * spread(scale(g), x) * -1
        return d.reshape(shape)

    return value, (to_x, None)


def rows(x: Array) -> Array:
    """x (N, classes, ...) as (N, classes, M)."""
    return x.reshape(*x.shape[:2], math.prod(x.shape[2:]))


def places_of(labels: Array) -> tuple[Array, Array, Array]:
    """The index of the labels' elements in an array (N, classes, M)."""
    xp, (n, m) = array_module(labels), labels.shape
    return xp.arange(n)[:, None], labels, xp.arange(m)


def softmax_of(logits: Array) -> tuple[Array, Array, Array]:
    """The logits less the largest of their row, their softmax, and its denominator's logarithm (N, M)."""
    xp, x = array_module(logits), rows(logits)
    shifted = x - (x.max(axis=1, keepdims=True) if x.size else 0)
    p = xp.exp(shifted)
    total = p.sum(axis=1)
    p /= total[:, None]
    return shifted, p, xp.log(total)


def spread(g: Array, x: Array) -> Array:
    """g, of a mean or of each row, as (N, M) in the dtype of x (N, classes, M)."""
    xp, shape = array_module(x), (x.shape[0], x.shape[2])
    g = xp.asarray(g, dtype=x.dtype)
    return g.reshape(shape) if g.ndim else xp.broadcast_to(g, shape)
