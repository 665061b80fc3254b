"""Layer norm as loops over rows, or as kernels on a GPU.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``fast/__init__.py``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import loops
from ...device import Array, array_module, on_gpu
from ...dtypes import floating
from ...faster import form_of
from ...pullback import OpResult
from ...tape import once, once_for_all
from ..layer_norm import check_last_axes, layer_norm
from .columns import gradient_sums
from .cuda_kernels import can_take, ceil, launch

THREADS = 256  # of a block, which has several rows if they are short


@form_of(layer_norm)
def by_loops(x: np.ndarray, weight: np.ndarray, bias: np.ndarray, *, eps: float = 1e-5) -> OpResult:
    """A row at a time, which stays in the cache."""
    check_last_axes("layer_norm", x, weight, bias)
    x = floating(x, weight)
    if not loops.can_take(x, weight, bias):
        return NotImplemented
    features, own = weight.size, weight.shape

    def rows(a: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(a).reshape(a.size // max(features, 1), features)

    x, shape = rows(x), x.shape
    y, (mean, scale) = np.empty_like(x), np.empty((2, len(x)), x.dtype)
    weight = weight.ravel()
    normalize(x, weight, bias.ravel(), eps, y, mean, scale)

    def to_x(g: np.ndarray) -> np.ndarray:
        d = np.empty_like(x)
        write_gradient(rows(g), x, mean, scale, weight, d)
        return d.reshape(shape)

    @once
    def to_parameters(g: np.ndarray) -> np.ndarray:
        sums = np.zeros((2, features))
        add_to_sums(rows(g), x, mean, scale, *sums)
        return sums.astype(x.dtype).reshape(2, *own)

    to_weight, to_bias = lambda g: to_parameters(g)[0].copy(), lambda g: to_parameters(g)[1].copy()
    return y.reshape(shape), (to_x, to_weight, to_bias)


@form_of(layer_norm)
def by_kernels(x: Array, weight: Array, bias: Array, *, eps: float = 1e-5) -> OpResult:
    """On a GPU a row by some neighbouring threads, and sums over the rows in two stages."""
    if not on_gpu(x):
        return NotImplemented
    check_last_axes("layer_norm", x, weight, bias)
    x = floating(x, weight)
    if not can_take(x, weight, bias):
        return NotImplemented
    contiguous, shape = array_module(x).ascontiguousarray, x.shape
    in_rows = lambda a: contiguous(a).reshape(a.size // weight.size, weight.size)  # noqa: E731
    x, flat = in_rows(x), contiguous(weight).reshape(-1)
    count, columns = x.shape
    y, mean, scale = (array_module(x).empty(size, x.dtype) for size in (x.shape, count, count))
    width = min(max((1 << (columns - 1).bit_length()) // 4, 1), THREADS)

    def of_rows(name: str, *arguments: Any) -> None:
        blocks, block = ceil(count, THREADS // width), {"dtype": x.dtype, "THREADS": THREADS}
        launch("layer_norm.cu", name, (blocks,), THREADS, *arguments, count, columns, width, eps, **block)

    of_rows("layer_norm", x, flat, contiguous(bias).reshape(-1), y, mean, scale)
    in_memory = once(lambda g: contiguous(in_rows(g), x.dtype))
    _, pullback = once_for_all(lambda g: gradient_sums(in_memory(g), normal=(x, mean, scale), by_row=True))

    def to_x(g: Array) -> Array:
        d = array_module(x).empty(x.shape, x.dtype)
        of_rows("layer_norm_gradient", in_memory(g), x, flat, mean, scale, d)
        return d.reshape(shape)

    shaped = lambda pull: pull if weight.ndim == 1 else lambda g: pull(g).reshape(weight.shape)  # noqa: E731
    return y.reshape(shape), (to_x, shaped(pullback(1)), shaped(pullback(0)))


@loops.compiled
def normalize(x: Array, weight: Array, bias: Array, eps: float, y: Array, mean: Array, scale: Array) -> None:
    rows, columns = x.shape
    for i in range(rows):
        total = 0.0
        for j in range(columns):
            total += x[i, j]
        m = x.dtype.type(total / columns)
        total = 0.0
        for j in range(columns):
            total += (x[i, j] - m) * (x[i, j] - m)
        s = x.dtype.type(1 / np.sqrt(total / columns + eps))
        for j in range(columns):
            y[i, j] = (x[i, j] - m) * s * weight[j] + bias[j]
        mean[i], scale[i] = m, s


@loops.compiled
def write_gradient(g: Array, x: Array, mean: Array, scale: Array, weight: Array, d: Array) -> None:
    rows, columns = x.shape
    for i in range(rows):
        m, s, total, along = mean[i], scale[i], 0.0, 0.0
        for j in range(columns):
            total += g[i, j] * weight[j]
            along += g[i, j] * weight[j] * (x[i, j] - m)
        a, b = x.dtype.type(total / columns), x.dtype.type(along / columns * s * s)
        for j in range(columns):
            d[i, j] = (g[i, j] * weight[j] - a - (x[i, j] - m) * b) * s


@loops.compiled
def add_to_sums(
    g: Array, x: Array, mean: Array, scale: Array, of_products: Array, of_gradients: Array
) -> None:
    """Add the sums of g times the normalized x, and of g: the gradients of weight and bias."""
    rows, columns = x.shape
    for i in range(rows):
        m, s = mean[i], scale[i]
        for j in range(columns):
            of_products[j] += g[i, j] * ((x[i, j] - m) * s)
            of_gradients[j] += g[i, j]
