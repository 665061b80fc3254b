"""Normalisation of each sample by itself, over groups of its channels.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``ops/__init__.py``.
"""

from __future__ import annotations

import math

import numpy as np

from .. import loops
from ..device import Array, array_module
from ..op import OpResult, Pullback, op, shape_of
from ..tape import once
from .elementwise import floating
from .geometry import are_integers
from .half import half_in_single

Normalized = tuple[Array, tuple[Pullback, Pullback, Pullback]]


@op
@half_in_single
def group_norm(x: Array, weight: Array, bias: Array, *, groups: int, eps: float = 1e-5) -> OpResult:
    """Each sample of x (N, C, ...) with mean 0 and variance 1 over each of ``groups`` groups of channels.

    The channels are then scaled by weight (C,) and shifted by bias (C,) (Wu and He 2018). Raises ValueError
    where a shape differs or the groups do not divide the channels.
    """
    channels = shape_of(x)[1:2]
    if not channels or not shape_of(weight) == shape_of(bias) == channels:
        raise ValueError(
            f"group_norm takes x (N, C, ...), C weights and C biases, got {shape_of(x)}, {shape_of(weight)} "
            f"and {shape_of(bias)}"
        )
    if not are_integers((groups,), 1, 1) or channels[0] % groups:
        raise ValueError(f"groups={groups} must be an integer that divides the {channels[0]} channels")
    return normalize_groups(x, weight, bias, int(groups), eps)


@op
@half_in_single
def instance_norm(
    x: Array, weight: Array | None = None, bias: Array | None = None, *, eps: float = 1e-5
) -> OpResult:
    """Each channel of each sample of x (N, C, ...) with mean 0 and variance 1 (Ulyanov et al. 2016).

    It is then scaled by weight (C,) and shifted by bias (C,) where they are passed. Raises ValueError where
    a shape differs, or where a channel has one value, which would become 0.
    """
    channels = shape_of(x)[1:2]
    shapes = [shape_of(a) for a in (weight, bias) if a is not None]
    if len(shapes) == 1 or any(shape != channels for shape in shapes):
        raise ValueError(
            f"instance_norm of x {shape_of(x)} takes C weights and C biases or neither, got {shapes}"
        )
    if math.prod(shape_of(x)[2:]) == 1:
        raise ValueError(
            f"instance_norm takes channels of several values, got {shape_of(x)}; use group_norm or layer_norm"
        )
    if weight is None or bias is None:
        xp, dtype = array_module(x), floating(x).dtype
        weight, bias = xp.ones(channels, dtype), xp.zeros(channels, dtype)
    value, pullbacks = normalize_groups(x, weight, bias, max(x.shape[1], 1), eps)
    return value, pullbacks if shapes else pullbacks[:1]


def normalize_groups(x: Array, weight: Array, bias: Array, groups: int, eps: float) -> Normalized:
    """The op on samples as pixels (N, P, C), as which images lie in memory."""
    xp, shape, ndim = array_module(x), x.shape, x.ndim

    def pixels(a: Array) -> Array:
        a = xp.ascontiguousarray(a.transpose(0, *range(2, ndim), 1))
        return a.reshape(shape[0], math.prod(shape[2:]), shape[1])

    def images(a: Array) -> Array:
        return a.reshape(shape[0], *shape[2:], shape[1]).transpose(0, ndim - 1, *range(1, ndim - 1))

    x = floating(x, weight)
    form = by_loops if loops.can_take(x, weight, bias) else by_passes
    y, (to_x, to_weight, to_bias) = form(pixels(x), weight, bias, groups, eps)
    g_pixels = once(pixels)  # one array for all, so that they share their sums
    to_parameters = (lambda g: to_weight(g_pixels(g))), (lambda g: to_bias(g_pixels(g)))
    return images(y), (lambda g: images(to_x(g_pixels(g))), *to_parameters)


def by_passes(x: Array, weight: Array, bias: Array, groups: int, eps: float) -> Normalized:
    """The readable form."""
    xp, (samples, n_pixels, channels) = array_module(x), x.shape
    size = channels // groups

    def mean(a: Array) -> Array:
        """That of each group, for each of its channels: (N, 1, C)."""
        sums = a.reshape(samples, n_pixels, groups, size).sum(axis=(1, 3))
        return xp.repeat(sums / max(n_pixels * size, 1), size, axis=1)[:, None]

    centred = x - mean(x)
    scale = 1 / xp.sqrt(mean(centred * centred) + eps)
    normal = centred * scale

    def to_x(g: Array) -> Array:
        d = g * weight
        return (d - mean(d) - normal * mean(d * normal)) * scale

    return normal * weight + bias, (to_x, lambda g: (g * normal).sum((0, 1)), lambda g: g.sum((0, 1)))


def by_loops(x: np.ndarray, weight: np.ndarray, bias: np.ndarray, groups: int, eps: float) -> Normalized:
    """The same, a sample at a time, which stays in the cache."""
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


# Over few channels the loops would be slow, so ``width`` elements, several pixels, are taken together. Chains
# of 32 additions are in the dtype of x, which is twice as fast, and their sums in float64.


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
