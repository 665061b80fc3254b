"""Functions of each row of matrices on a GPU: the kernels of ``rows.cu``.

Lecture section: GPU against CPU. Lesson: 04_gpu.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...device import Array, array_module
from .cuda_kernels import C_TYPES, ceil, int32, kernel

THREADS = 256  # of a block
MOST_ROWS = 1 << 10  # whose losses one block computes, a thread for each
MOST_LOGITS = 1 << 16  # that it reads
MOST_LOSSES = 1 << 16  # of which one block computes the mean


def launch(
    name: str, blocks: int, threads: int, like: Array, *arguments: Any, label: str = "long long"
) -> None:
    """Call the kernel ``name`` for numbers of the dtype of ``like``, and labels of a type of C++."""
    macros = {"THREADS": THREADS, "MOST_ROWS": MOST_ROWS, "LABEL": label}
    kernel("rows.cu", name, like.dtype.char, **macros)((blocks,), (threads,), arguments)


def of_rows(name: str, *arrays: Array, eps: float | None = None) -> None:
    """Call the kernel ``name`` for all rows of the first array, with a quarter as many threads as columns."""
    rows, columns = arrays[0].shape
    width = min(max((1 << (columns - 1).bit_length()) // 4, 1), THREADS)
    numbers = [*([] if eps is None else [np.float64(eps)]), *int32(rows, columns, width)]
    launch(name, ceil(rows, THREADS // width), THREADS, arrays[0], *arrays, *numbers)


def layer_norm(x: Array, weight: Array, bias: Array, eps: float) -> tuple[Array, Array, Array]:
    """Rows x with mean 0 and variance 1, times weight, plus bias; the rows' means, and their scales."""
    xp = array_module(x)
    y, mean, scale = xp.empty(x.shape, x.dtype), xp.empty(len(x), x.dtype), xp.empty(len(x), x.dtype)
    of_rows("layer_norm", x, weight, bias, y, mean, scale, eps=eps)
    return y, mean, scale


def layer_norm_gradient(g: Array, x: Array, weight: Array, mean: Array, scale: Array) -> Array:
    d = array_module(x).empty(x.shape, x.dtype)
    of_rows("layer_norm_gradient", g, x, weight, mean, scale, d)
    return d


def takes(logits: Array, labels: Array) -> bool:
    """Whether ``cross_entropy`` computes the loss of these: few rows, with labels of a common type."""
    few = len(logits) <= MOST_ROWS and logits.size <= MOST_LOGITS
    return few and labels.dtype.char in C_TYPES and labels.dtype.kind in "iu"


def cross_entropy(logits: Array, labels: Array, largest: Array, total: Array) -> Array:
    """The mean loss; written are each row's ``largest`` logit, and the ``total`` of exponentials less it."""
    loss, (rows, classes) = array_module(logits).empty((), logits.dtype), logits.shape
    threads = max(1 << (rows - 1).bit_length(), 32)
    arrays, label = (logits, labels, largest, total, loss), C_TYPES[labels.dtype.char]
    launch("cross_entropy", 1, threads, logits, *arrays, *int32(rows, classes), label=label)
    return loss


def mean_of_losses(losses: Array) -> Array:
    """``losses.mean()``, by one kernel for up to ``MOST_LOSSES`` of them."""
    if losses.size > MOST_LOSSES:
        return losses.mean()
    mean = array_module(losses).empty((), losses.dtype)
    launch("mean_of_losses", 1, THREADS, losses, losses, mean, *int32(losses.size))
    return mean
