"""Integer labels of logits (N, classes) or, with a label for each pixel, (N, classes, ...).

Lecture section: gradient descent. Lesson: 01_gradient_descent, by ``loss.py``.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from ..device import Array, array_module
from ..forward_pass import check_whole_batch
from ..tensor_base import data_of


def checked_labels(labels: Array, logits: tuple[int, ...], loss: str = "cross_entropy") -> Array:
    """``labels``; raises ValueError or TypeError unless they are classes of logits of this shape."""
    check_kind(labels, logits, loss)
    classes = logits[1]
    if labels.size and not (int(labels.min()) >= 0 and int(labels.max()) < classes):
        raise ValueError(
            f"labels run from {int(labels.min())} to {int(labels.max())}, the logits have classes "
            f"0 to {classes - 1}; correct the labels or give the last layer more outputs"
        )
    return labels


def check_kind(labels: Array, logits: tuple[int, ...], loss: str = "cross_entropy") -> None:
    """Raise ValueError or TypeError unless ``labels`` are integers, one for each row or pixel."""
    if len(logits) < 2 or labels.shape != (logits[0], *logits[2:]):
        raise ValueError(
            f"{loss} takes logits (N, classes, ...) and labels (N, ...), got {logits} and {labels.shape}; "
            "pass one integer label per row or pixel, or probabilities of the logits' shape"
        )
    if labels.dtype.kind not in "iu":
        raise TypeError(f"{loss} needs integer labels, got {labels.dtype}; convert them with .astype(int)")


class LabelSettings(NamedTuple):
    """The settings of a ``loss`` of labels, as ``cross_entropy`` documents them."""

    loss: str
    weight: Any
    ignore_index: int | None
    label_smoothing: float
    reduction: str

    def class_weights(self, x: Array) -> Array:
        """The weight of each class of x (N, classes, ...), by default 1."""
        xp, classes = array_module(x), x.shape[1]
        weights = xp.ones(classes, x.dtype) if self.weight is None else data_of(self.weight)
        if weights.shape != (classes,):
            raise ValueError(
                f"{self.loss} needs a weight for each of {classes} classes, got the shape {weights.shape}"
            )
        return xp.asarray(weights, x.dtype)

    def one_hot(self, labels: Array, x: Array) -> Array:
        """An array like x (N, classes, ...), 1 at each label's class and else 0, also where it is ignored.

        Raises as ``checked_labels``; but labels on a GPU, where the host does not wait, are NaN if no class.
        """
        xp, classes = array_module(x), x.shape[1]
        labels = labels if hasattr(labels, "dtype") else np.asarray(labels)
        check_kind(labels, x.shape, self.loss)
        counts = labels == labels if self.ignore_index is None else labels != self.ignore_index
        if array_module(labels) is np:
            checked_labels(labels * counts, x.shape, self.loss)
        labels, counts = xp.asarray(labels)[:, None], xp.asarray(counts)[:, None]
        is_class = (labels >= 0) & (labels < classes) | ~counts
        numbers = xp.arange(classes).reshape(-1, *[1] * (x.ndim - 2))
        return (counts & (labels == numbers)) + xp.where(is_class, 0, math.nan).astype(x.dtype)

    def divisor(self, factors: Array) -> Array | None:
        """What a mean divides by, from the factors of labels; None where that is their number."""
        if self.weight is None and self.ignore_index is None or not factors.size:
            return None
        if self.reduction == "mean":
            setting = "ignore_index" if self.weight is None else "weight"
            check_whole_batch(f"the mean {self.loss} with {setting}")
        return factors.sum()
