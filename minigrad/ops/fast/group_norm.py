"""Group norm as loops over samples.

Over few channels they would be slow, so ``width`` elements, several pixels, are taken together. Chains of 32
additions are in the dtype of x, which is twice as fast, and their sums in float64.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``fast/__init__.py``.
"""

from __future__ import annotations

import numpy as np

from ... import loops
from ...device import Array
from ...faster import form_of
from ..group_norm import Normalized, by_pixels


@form_of(by_pixels)
def by_loops(x: np.ndarray, weight: np.ndarray, bias: np.ndarray, groups: int, eps: float) -> Normalized:
    """A sample at a time, which stays in the cache."""
    if not loops.can_take(x, weight, bias):
        return NotImplemented
    weight, bias = np.ascontiguousarray(weight), np.ascontiguousarray(bias)
    mean, scale = np.empty((2, len(x), x.shape[2]), x.dtype)
    y, latest = np.empty_like(x), []
    write_normalized(x, weight, bias, groups, eps, mean, scale, y)

    def to_x(g: np.ndarray) -> np.ndarray:
        d, sums = np.empty_like(x), np.empty((2, *mean.shape), x.dtype)
        write_gradient(g, x, weight, groups, mean, scale, *sums, d)
        latest[:] = g, sums
        return d

    def sums(g: np.ndarray) -> np.ndarray:
        if not latest or latest[0] is not g:
            to_x(g)
        return latest[1]

    return y, (to_x, lambda g: (sums(g)[1] * scale).sum(axis=0), lambda g: sums(g)[0].sum(axis=0))


@loops.compiled
def write_normalized(
    x: Array, weight: Array, bias: Array, groups: int, eps: float, mean: Array, scale: Array, y: Array
) -> None:
    """y (N, P, C), and (N, C) of its groups."""
    samples, pixels, channels = x.shape
    size, width, each = pixels * channels, channels * (128 // channels + 1), channels // groups
    count, sums, chains = pixels * each, np.zeros(width), np.zeros(width, x.dtype)
    m, f, b = np.empty(width, x.dtype), np.empty(width, x.dtype), np.empty(width, x.dtype)
    for n in range(samples):
        of_x, of_y = x[n].reshape(-1), y[n].reshape(-1)
        for first in range(0, size, 32 * width):
            for start in range(first, min(first + 32 * width, size), width):
                part = of_x[start : start + width]
                for j in range(len(part)):
                    chains[j] += part[j]
            for j in range(width):
                sums[j], chains[j] = sums[j] + chains[j], 0
        for j in range(channels, width):
            sums[j % channels] += sums[j]
        for c in range(0, channels, each):
            total = 0.0
            for j in range(c, c + each):
                total += sums[j]
            for j in range(c, c + each):
                mean[n, j] = total / count
        for j in range(width):
            sums[j], m[j] = 0, mean[n, j % channels]
        for first in range(0, size, 32 * width):
            for start in range(first, min(first + 32 * width, size), width):
                part = of_x[start : start + width]
                for j in range(len(part)):
                    chains[j] += (part[j] - m[j]) * (part[j] - m[j])
            for j in range(width):
                sums[j], chains[j] = sums[j] + chains[j], 0
        for j in range(channels, width):
            sums[j % channels] += sums[j]
        for c in range(0, channels, each):
            total = 0.0
            for j in range(c, c + each):
                total += sums[j]
            for j in range(c, c + each):
                scale[n, j] = 1 / np.sqrt(total / count + eps)
        for j in range(width):
            c = j % channels
            sums[j], f[j], b[j] = 0, scale[n, c] * weight[c], bias[c]
        for start in range(0, size, width):
            part, out = of_x[start : start + width], of_y[start : start + width]
            for j in range(len(part)):
                out[j] = (part[j] - m[j]) * f[j] + b[j]


@loops.compiled
def write_gradient(
    g: Array,
    x: Array,
    weight: Array,
    groups: int,
    mean: Array,
    scale: Array,
    total: Array,
    along: Array,
    d: Array,
) -> None:
    """d (N, P, C), and (N, C) the sums of g and those of its products with the deviations."""
    samples, pixels, channels = x.shape
    size, width, each = pixels * channels, channels * (128 // channels + 1), channels // groups
    count, sums, products = pixels * each, np.zeros(width), np.zeros(width)
    chains, chains_of_products = np.zeros(width, x.dtype), np.zeros(width, x.dtype)
    m, f = np.empty(width, x.dtype), np.empty(width, x.dtype)
    a, b = np.empty(width, x.dtype), np.empty(width, x.dtype)
    for n in range(samples):
        of_g, of_x, of_d = g[n].reshape(-1), x[n].reshape(-1), d[n].reshape(-1)
        for j in range(width):
            sums[j], products[j], m[j] = 0, 0, mean[n, j % channels]
        for first in range(0, size, 32 * width):
            for start in range(first, min(first + 32 * width, size), width):
                part, gs = of_x[start : start + width], of_g[start : start + width]
                for j in range(len(part)):
                    chains[j] += gs[j]
                    chains_of_products[j] += gs[j] * (part[j] - m[j])
            for j in range(width):
                sums[j], chains[j] = sums[j] + chains[j], 0
                products[j], chains_of_products[j] = products[j] + chains_of_products[j], 0
        for j in range(channels, width):
            sums[j % channels] += sums[j]
            products[j % channels] += products[j]
        for c in range(channels):
            total[n, c], along[n, c] = sums[c], products[c]
        for first in range(0, channels, each):
            of_gradient, of_products, s = 0.0, 0.0, scale[n, first]
            for c in range(first, first + each):
                of_gradient += total[n, c] * weight[c]
                of_products += along[n, c] * weight[c]
            for c in range(first, first + each):
                f[c], a[c], b[c] = s * weight[c], of_products / count * s * s * s, of_gradient / count * s
        for j in range(channels, width):
            f[j], a[j], b[j] = f[j - channels], a[j - channels], b[j - channels]
        for start in range(0, size, width):
            stop = start + width
            part, gs, out = of_x[start:stop], of_g[start:stop], of_d[start:stop]
            for j in range(len(part)):
                out[j] = gs[j] * f[j] - (part[j] - m[j]) * a[j] - b[j]
