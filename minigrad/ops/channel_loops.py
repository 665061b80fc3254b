"""Loops over the pixels of samples, for normalisations: a sum for each channel, numbers for each channel.

Samples are (N, P, C), numbers of channels (N, C); ``batch_norm`` takes its batch as one sample. Loops over
few channels are slow, so ``width`` elements, several pixels, are taken together. Chains of 32 additions are
in the dtype of x, which is twice as fast, and their sums in float64.
Lecture section: back-propagation. Lesson: 02_backpropagation, by ``batch_norm.py``.
"""

from __future__ import annotations

import numpy as np

from .. import loops
from ..device import Array


@loops.compiled
def write_moments(x: Array, groups: int, mean: Array, squares: Array) -> None:
    """The mean of each channel's group, and the sum of the squared deviations from it."""
    samples, pixels, channels = x.shape
    width, each = channels * (128 // channels + 1), channels // groups
    size, sums, (chains, m) = pixels * channels, np.zeros(width), np.zeros((2, width), x.dtype)
    for n in range(samples):
        of_x = x[n].reshape(-1)
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
            mean[n, c : c + each] = sums[c : c + each].sum() / (pixels * each)
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
            squares[n, c : c + each] = sums[c : c + each].sum()
        sums[:] = 0


@loops.compiled
def write_normalized(x: Array, mean: Array, factor: Array, bias: Array, relu: bool, y: Array) -> None:
    """(x - mean) factor + bias (C,), or with ``relu`` what is positive of it."""
    samples, _, channels = x.shape
    width, zero = channels * (128 // channels + 1), x.dtype.type(0)
    m, f, b = np.empty((3, width), x.dtype)
    for n in range(samples):
        of_x, of_y = x[n].reshape(-1), y[n].reshape(-1)
        for j in range(width):
            c = j % channels
            m[j], f[j], b[j] = mean[n, c], factor[n, c], bias[c]
        for start in range(0, len(of_x), width):
            part, out = of_x[start : start + width], of_y[start : start + width]
            for j in range(len(part)):
                value = (part[j] - m[j]) * f[j] + b[j]
                out[j] = zero if relu and value <= 0 else value


@loops.compiled
def write_gradient_sums(
    g: Array, relu: bool, y: Array, x: Array, mean: Array, total: Array, along: Array
) -> None:
    """Of g, with ``relu`` where y is positive: its sums, and those of its products with the deviations."""
    samples, pixels, channels = x.shape
    width, zero = channels * (128 // channels + 1), x.dtype.type(0)
    size, sums, products = pixels * channels, np.empty(width), np.empty(width)
    chains, chains_of_products, m = np.zeros((3, width), x.dtype)
    for n in range(samples):
        of_g, of_y, of_x = g[n].reshape(-1), y[n].reshape(-1), x[n].reshape(-1)
        for j in range(width):
            sums[j], products[j], m[j] = 0, 0, mean[n, j % channels]
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
        for c in range(channels):
            total[n, c], along[n, c] = sums[c::channels].sum(), products[c::channels].sum()


@loops.compiled
def write_gradient(
    g: Array,
    relu: bool,
    y: Array,
    x: Array,
    mean: Array,
    factor: Array,
    slope: Array,
    shift: Array,
    d: Array,
) -> None:
    """g factor - (x - mean) slope - shift, g as in ``write_gradient_sums``."""
    samples, _, channels = x.shape
    width, zero = channels * (128 // channels + 1), x.dtype.type(0)
    m, f, a, b = np.empty((4, width), x.dtype)
    for n in range(samples):
        of_g, of_y, of_x, of_d = g[n].reshape(-1), y[n].reshape(-1), x[n].reshape(-1), d[n].reshape(-1)
        for j in range(width):
            c = j % channels
            m[j], f[j], a[j], b[j] = mean[n, c], factor[n, c], slope[n, c], shift[n, c]
        for start in range(0, len(of_x), width):
            stop = start + width
            part, gs, ys, out = of_x[start:stop], of_g[start:stop], of_y[start:stop], of_d[start:stop]
            for j in range(len(part)):
                e = zero if relu and ys[j] <= 0 else gs[j]
                out[j] = e * f[j] - (part[j] - m[j]) * a[j] - b[j]
