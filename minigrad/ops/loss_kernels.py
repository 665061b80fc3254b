"""Cross-entropy on a GPU in a few kernels; ``loss.cross_entropy`` is the readable form.

Lecture section: GPU against CPU. Lesson: 04_gpu.
"""

from __future__ import annotations

import math

from ..device import Array, array_module, elementwise_kernel
from ..op import OpResult

IS_CLASS = "(label >= 0) & (label < classes)"


def cross_entropy(logits: Array, labels: Array) -> OpResult:
    """``loss.cross_entropy`` of float32 or float64 logits of at least one sample, on one GPU with the labels.

    A sample's share is NaN, in the loss and in the gradient, where its label is no class.
    """
    xp, (n, classes) = array_module(logits), logits.shape
    label, column = labels[:, None], xp.arange(classes)
    p, own = xp.empty(logits.shape, logits.dtype), xp.empty(logits.shape, logits.dtype)
    exponentials()(logits, logits.max(axis=1, keepdims=True), label, column, p, own)
    total = p.sum(axis=1)
    losses = xp.empty(n, logits.dtype)
    losses_of_rows()(total, own.sum(axis=1), labels, classes, math.nan, losses)

    def to_logits(g: Array) -> Array:
        d = xp.empty(p.shape, p.dtype)
        gradient()(p, total[:, None], label, column, g, n, classes, math.nan, d)
        return d

    return losses.mean(), (to_logits, None)


def exponentials():
    """e ** (x - largest), and x - largest at the label's column, 0 at others."""
    statements = "p = exp(x - largest); own = choose(label == column, x - largest, 0)"
    return elementwise_kernel("T x, T largest, L label, C column", "T p, T own", statements, "exponentials")


def losses_of_rows():
    """-log softmax at the label."""
    statement = f"loss = choose({IS_CLASS}, log(total) - own, nan)"
    inputs = "T total, T own, L label, int64 classes, T nan"
    return elementwise_kernel(inputs, "T loss", statement, "losses_of_rows")


def gradient():
    """(softmax - 1 at the label) g / count."""
    share = "(p / total - choose(label == column, 1, 0)) * (g / count)"
    inputs = "T p, T total, L label, C column, G g, G count, int64 classes, T nan"
    return elementwise_kernel(
        inputs, "T d", f"d = choose({IS_CLASS}, {share}, nan)", "cross_entropy_gradient"
    )
