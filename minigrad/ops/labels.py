"""Integer labels of logits (N, classes) or, with a label for each pixel, (N, classes, ...).

Lecture section: gradient descent. Lesson: 01_gradient_descent, by ``loss.py``.
"""

from __future__ import annotations

from ..device import Array


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


def classes_of(logits: tuple[int, ...], loss: str) -> int:
    """How many classes logits of this shape have; raises ValueError for those of one sample alone."""
    if len(logits) < 2:
        raise ValueError(
            f"{loss} takes logits (N, classes, ...), got {logits}; x[None] adds the axis of samples"
        )
    return logits[1]
