"""The steps of batch normalization as loops, and all of it as kernels on a GPU.

Over few channels they would be slow, so ``width`` elements, several pixels, are taken together. Chains of 32
additions are in the dtype of x, which is twice as fast, and their sums in float64.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``fast/__init__.py``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import loops
from ...device import Array, array_module, elementwise_kernel, on_gpu
from ...dtypes import floating
from ...faster import form_of
from ...memory_order import channels_last
from ...pullback import OpResult, shape_of
from ...tape import once, once_for_all
from ..batch_norm import Gather, Observe, batch_norm, gradient, gradient_sums, moments, move, normalized
from . import columns, elementwise_kernels
from .cuda_kernels import can_take


@form_of(batch_norm)
def batch_norm_by_kernels(
    x: Array,
    weight: Array,
    bias: Array,
    *,
    statistics: tuple[Array, Array] | None = None,
    eps: float = 1e-5,
    observe: Observe | None = None,
    gather: Gather | None = None,
    relu: bool = False,
) -> OpResult:
    """Each way the sums of columns, of many rows in two stages, then one pass."""
    shape, fixed = shape_of(x), statistics is not None
    if not on_gpu(x) or gather is not None:
        return NotImplemented
    x = floating(x, weight)
    if not can_take(x, weight, bias, *(statistics or ())):
        return NotImplemented
    alike = 2 <= len(shape) <= 4 and weight.shape == bias.shape == shape[1:2]
    if not alike or x.size < 2 * shape[1]:
        return NotImplemented
    pixels, images = channels_last(x, x.size // shape[1])
    xp, x = array_module(x), pixels(x)
    weight, bias = xp.ascontiguousarray(weight), xp.ascontiguousarray(bias)
    if statistics is None:
        statistics = columns.sums("moments", "merge_moments", (x,))
    mean, variance = map(xp.ascontiguousarray, statistics)
    if observe is not None and not fixed:
        observe(mean, variance, len(x))
    y, scale = xp.empty(x.shape, x.dtype), xp.empty(shape[1], x.dtype)
    columns.each_element("normalize", x, mean, variance, weight, bias, y, scale, settings=(eps, relu))
    normal, after_relu, in_memory = (
        (x, mean, scale),
        y if relu else None,
        once(lambda g: xp.ascontiguousarray(pixels(g), x.dtype)),
    )
    read, pullback = once_for_all(lambda g: columns.gradient_sums(in_memory(g), after_relu, normal))

    def to_x(g: Array) -> Array:
        d, moved = xp.empty(x.shape, x.dtype), (None, None) if fixed else (read(g, 0), read(g, 1))
        columns.each_element("normalize_gradient", in_memory(g), after_relu, *normal, weight, *moved, d)
        return images(d)

    return images(y), (to_x, pullback(1), pullback(0))


@form_of(move)
def move_in_one_kernel(
    running: tuple[Array, Array], mean: Array, var: Array, momentum: float, unbias: float = 1.0
) -> Any:
    if not elementwise_kernels.can_take(*running, mean, var):
        return NotImplemented
    statements = "m = m + momentum * (mean - m); v = v + momentum * (unbias * var - v)"
    inputs = "T mean, T var, T momentum, T unbias"
    elementwise_kernel(inputs, "T m, T v", statements, "move")(mean, var, momentum, unbias, *running)
    return None


@form_of(moments)
def moments_by_loops(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if not loops.can_take(x):
        return NotImplemented
    mean, squares = np.empty(x.shape[1], x.dtype), np.empty(x.shape[1], x.dtype)
    write_moments(x, mean, squares)
    return mean, squares


@form_of(normalized)
def normalized_by_loops(
    x: np.ndarray, mean: np.ndarray, factor: np.ndarray, bias: np.ndarray, relu: bool
) -> np.ndarray:
    if not loops.can_take(x, mean, factor, bias):
        return NotImplemented
    y = np.empty(x.shape, x.dtype)
    write_normalized(x, mean, factor, np.ascontiguousarray(bias), relu, y)
    return y


@form_of(gradient_sums)
def sums_by_loops(
    g: np.ndarray, after_relu: np.ndarray | None, x: np.ndarray, mean: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    if not loops.can_take(g, x, mean):
        return NotImplemented
    total, along = np.empty((2, x.shape[1]), x.dtype)
    y, relu = (x, False) if after_relu is None else (after_relu, True)
    write_gradient_sums(np.ascontiguousarray(g), relu, y, x, mean, total, along)
    return total, along


@form_of(gradient)
def gradient_by_loops(
    g: np.ndarray,
    after_relu: np.ndarray | None,
    x: np.ndarray,
    mean: np.ndarray,
    factor: np.ndarray,
    slope: np.ndarray,
    shift: np.ndarray,
) -> np.ndarray:
    if not loops.can_take(g, x, mean, factor, slope, shift):
        return NotImplemented
    d = np.empty(x.shape, x.dtype)
    y, relu = (x, False) if after_relu is None else (after_relu, True)
    write_gradient(np.ascontiguousarray(g), relu, y, x, mean, factor, slope, shift, d)
    return d


@loops.compiled
def write_moments(x: Array, mean: Array, squares: Array) -> None:
    n, channels = x.shape
    size, width, of_x = n * channels, channels * (128 // channels + 1), x.reshape(-1)
    sums, chains, m = np.zeros(width), np.zeros(width, x.dtype), np.empty(width, x.dtype)
    for first in range(0, size, 32 * width):
        for start in range(first, min(first + 32 * width, size), width):
            part = of_x[start : start + width]
            for j in range(len(part)):
                chains[j] += part[j]
        for j in range(width):
            sums[j], chains[j] = sums[j] + chains[j], 0
    for j in range(channels, width):
        sums[j % channels] += sums[j]
    for c in range(channels):
        mean[c] = sums[c] / n
    for j in range(width):
        sums[j], m[j] = 0, mean[j % channels]
    for first in range(0, size, 32 * width):
        for start in range(first, min(first + 32 * width, size), width):
            part = of_x[start : start + width]
            for j in range(len(part)):
                chains[j] += (part[j] - m[j]) * (part[j] - m[j])
        for j in range(width):
            sums[j], chains[j] = sums[j] + chains[j], 0
    for j in range(channels, width):
        sums[j % channels] += sums[j]
    for c in range(channels):
        squares[c] = sums[c]


@loops.compiled
def write_normalized(x: Array, mean: Array, factor: Array, bias: Array, relu: bool, y: Array) -> None:
    n, channels = x.shape
    size, width, zero = n * channels, channels * (128 // channels + 1), x.dtype.type(0)
    of_x, of_y = x.reshape(-1), y.reshape(-1)
    m, f, b = np.empty(width, x.dtype), np.empty(width, x.dtype), np.empty(width, x.dtype)
    for j in range(width):
        c = j % channels
        m[j], f[j], b[j] = mean[c], factor[c], bias[c]
    for start in range(0, size, width):
        part, out = of_x[start : start + width], of_y[start : start + width]
        for j in range(len(part)):
            value = (part[j] - m[j]) * f[j] + b[j]
            out[j] = zero if relu and value <= 0 else value


@loops.compiled
def write_gradient_sums(
    g: Array, relu: bool, y: Array, x: Array, mean: Array, total: Array, along: Array
) -> None:
    n, channels = x.shape
    size, width, zero = n * channels, channels * (128 // channels + 1), x.dtype.type(0)
    of_g, of_y, of_x = g.reshape(-1), y.reshape(-1), x.reshape(-1)
    sums, chains = np.zeros(width), np.zeros(width, x.dtype)
    products, chains_of_products, m = np.zeros(width), np.zeros(width, x.dtype), np.empty(width, x.dtype)
    for j in range(width):
        m[j] = mean[j % channels]
    for first in range(0, size, 32 * width):
        for start in range(first, min(first + 32 * width, size), width):
            stop = start + width
            part, gs, ys = of_x[start:stop], of_g[start:stop], of_y[start:stop]
            for j in range(len(part)):
                d = zero if relu and ys[j] <= 0 else gs[j]
                chains[j] += d
                chains_of_products[j] += d * (part[j] - m[j])
        for j in range(width):
            sums[j], chains[j] = sums[j] + chains[j], 0
            products[j], chains_of_products[j] = products[j] + chains_of_products[j], 0
    for j in range(channels, width):
        sums[j % channels] += sums[j]
        products[j % channels] += products[j]
    for c in range(channels):
        total[c], along[c] = sums[c], products[c]


@loops.compiled
def write_gradient(
    g: Array, relu: bool, y: Array, x: Array, mean: Array, factor: Array, slope: Array, shift: Array, d: Array
) -> None:
    n, channels = x.shape
    size, width, zero = n * channels, channels * (128 // channels + 1), x.dtype.type(0)
    of_g, of_y, of_x, of_d = g.reshape(-1), y.reshape(-1), x.reshape(-1), d.reshape(-1)
    m, f = np.empty(width, x.dtype), np.empty(width, x.dtype)
    a, b = np.empty(width, x.dtype), np.empty(width, x.dtype)
    for j in range(width):
        c = j % channels
        m[j], f[j], a[j], b[j] = mean[c], factor[c], slope[c], shift[c]
    for start in range(0, size, width):
        stop = start + width
        part, gs, ys, out = of_x[start:stop], of_g[start:stop], of_y[start:stop], of_d[start:stop]
        for j in range(len(part)):
            e = zero if relu and ys[j] <= 0 else gs[j]
            out[j] = e * f[j] - (part[j] - m[j]) * a[j] - b[j]
