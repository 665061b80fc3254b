"""Losses on a GPU in a few kernels; ``..loss`` has the readable forms.

Lecture section: GPU against CPU. Lesson: 04_gpu.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ...device import Array, array_module, compiles_cuda, elementwise_kernel
from ...pullback import OpResult
from .cuda_kernels import C_TYPES, launch

MOST_ROWS, MOST_LOGITS = 1 << 10, 1 << 16  # of a loss that one block of threads computes
IS_CLASS = "(label >= 0) & (label < classes)"


def cross_entropy(logits: Array, labels: Array) -> OpResult:
    """``loss.cross_entropy`` of float32 or float64 logits of at least one sample, on one GPU with the labels.

    A sample's share is NaN, in the loss and in the gradient, where its label is no class.
    """
    xp, (n, classes) = array_module(logits), logits.shape
    largest, total = xp.empty(n, logits.dtype), xp.empty(n, logits.dtype)
    few = n <= MOST_ROWS and logits.size <= MOST_LOGITS
    if few and labels.dtype.char in C_TYPES and labels.dtype.kind in "iu" and compiles_cuda():
        loss, threads = xp.empty((), logits.dtype), max(1 << (n - 1).bit_length(), 32)
        read = map(xp.ascontiguousarray, (logits, labels))
        arguments = *read, largest, total, loss, n, classes
        macros = {"LABEL": C_TYPES[labels.dtype.char], "MOST_ROWS": MOST_ROWS}
        launch("cross_entropy.cu", "cross_entropy", (1,), threads, *arguments, dtype=logits.dtype, **macros)
    else:
        losses = xp.empty(n, logits.dtype)
        losses_of_rows()(logits, labels, classes, math.nan, largest, total, losses)
        loss = losses.mean()

    def to_logits(g: Array) -> Array:
        d, columns = xp.empty(logits.shape, logits.dtype), (largest[:, None], total[:, None], labels[:, None])
        cross_entropy_gradient()(logits, *columns, g, n, classes, math.nan, d)
        return d

    return loss, (to_logits, None)


def losses_of_rows() -> Callable:
    """-log softmax at the label: a thread for each row, as there are few classes and many samples."""
    statements = f"""
        largest = x[i * classes];
        for (int c = 1; c < classes; ++c) {{
            T value = x[i * classes + c];
            if ((value > largest) | (value != value)) {{ largest = value; }}
        }}
        total = 0;
        for (int c = 0; c < classes; ++c) {{ total = total + exp(x[i * classes + c] - largest); }}
        loss = nan;
        if ({IS_CLASS}) {{
            ptrdiff_t own = i * classes + label;
            loss = log(total) - (x[own] - largest);
        }}"""
    inputs, outputs = "raw T x, L label, int64 classes, T nan", "T largest, T total, T loss"
    return elementwise_kernel(inputs, outputs, statements, "losses_of_rows")


def cross_entropy_gradient() -> Callable:
    """(softmax - 1 at the label) g / count."""
    share = "(exp(x - largest) / total - choose(label == i % classes, 1, 0)) * (g / count)"
    inputs = "T x, T largest, T total, L label, G g, G count, int64 classes, T nan"
    return elementwise_kernel(
        inputs, "T d", f"d = choose({IS_CLASS}, {share}, nan)", "cross_entropy_gradient"
    )


def binary_cross_entropy_with_logits(logits: Array, targets: Array) -> OpResult:
    """The loss of the same name of float32 or float64 logits and targets of one dtype, on one GPU."""
    xp, n = array_module(logits), max(logits.size, 1)
    losses = xp.empty(logits.shape, logits.dtype)
    logistic_losses()(logits, targets, n, losses)

    def to_logits(g: Array) -> Array:
        d = xp.empty(logits.shape, logits.dtype)
        logistic_gradient()(logits, targets, g, n, d)
        return d

    return losses.sum(), (to_logits, lambda g: logits * (g * -1 / n))


def logistic_losses() -> Callable:
    """(log(1 + e ** x) - t x) / count, with the exponential always of a negative number."""
    each = "(x * (choose(x > 0, 1, 0) - t) + log1p(exp(choose(x > 0, -x, x)))) / count"
    return elementwise_kernel("T x, T t, T count", "T loss", f"loss = {each}", "logistic_losses")


def logistic_gradient() -> Callable:
    """(logistic(x) - t) g / count."""
    share = "(1 / (1 + exp(-x)) - t) * (g / count)"
    return elementwise_kernel("T x, T t, G g, G count", "T d", f"d = {share}", "logistic_loss_gradient")
