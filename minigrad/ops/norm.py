"""Normalisation over the batch or over the features of a sample.

Lecture section: back-propagation. Lesson: 02_backpropagation.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, ParamSpec, cast

import numpy as np

from ..device import Array, array_module
from ..op import OpResult, op, shape_of
from ..tape import once
from ..tensor import Tensor
from .geometry import nchw, nhwc
from .product import product

P = ParamSpec("P")
Observe = Callable[[Array, Array, float], None]
Gather = Callable[[Array], Sequence[Array]]


def channelwise(function: Callable[P, OpResult]) -> Callable[P, Tensor]:
    """``op`` of a function of (N, C) arrays; it gets images as pixels, (N H W, C), channels-last."""

    @wraps(function)
    def of_images(x: Array, *arrays: Any, **settings: Any) -> OpResult:
        if len(shape_of(x)) != 4:
            return cast(Any, function)(x, *arrays, **settings)
        n, channels, rows, columns = x.shape

        def pixels(images: Array) -> Array:
            return nhwc(images).reshape(n * rows * columns, channels)

        def images(pixels: Array) -> Array:
            return nchw(pixels.reshape(n, rows, columns, channels))

        value, (to_x, *others) = cast(Any, function)(pixels(x), *arrays, **settings)
        g_pixels = once(pixels)  # one array for all, so that they share their sums
        to_others = [wraps(pull)(lambda g, pull=pull: pull(g_pixels(g))) for pull in others]
        return images(value), (wraps(to_x)(lambda g: images(to_x(g_pixels(g)))), *to_others)

    return cast(Any, op(cast(Any, of_images)))


@channelwise
def batch_norm(
    x: Array,
    weight: Array,
    bias: Array,
    *,
    statistics: tuple[Array, Array] | None = None,
    eps: float = 1e-5,
    observe: Observe | None = None,
    gather: Gather | None = None,
) -> OpResult:
    """(x - mean) / sqrt(var + eps) * weight + bias per channel, for x (N, C) or (N, C, H, W).

    Mean and variance are the batch's own (Ioffe and Szegedy 2015) and passed to ``observe(mean, var,
    count)``, or the constants ``statistics = (mean, var)``. Where other ranks hold the rest of the batch,
    ``gather(array)`` returns all ranks' arrays, the same list everywhere: it is called once forward, with
    2 C + 1 numbers, and once by the gradient of x, with 2 C; the gradients of weight and bias stay
    this rank's sums. Raises ValueError where C differs; warns where a channel has one value, its own mean.
    """
    if len(shape_of(x)) not in (2, 4) or not shape_of(weight) == shape_of(bias) == x.shape[1:2]:
        raise ValueError(
            f"batch_norm takes x (N, C) or (N, C, H, W), C weights and C biases, got {shape_of(x)}, "
            f"{shape_of(weight)} and {shape_of(bias)}"
        )
    xp, n, shape = array_module(x), float(len(x)), x.shape
    rows = rows_together(x) if xp is np else 1
    x = x.reshape(len(x) // rows, rows * x.shape[1])

    def per_channel(a: Array) -> Array:
        return array_module(a).tile(a, rows)

    def sums_of(x: Array) -> Array:
        return product(xp.ones(len(x), x.dtype), x).reshape(rows, -1).sum(axis=0)

    if statistics is None:
        mean = sums_of(x) / max(n, 1)
        centred = x - per_channel(mean)
        squares = sums_of(centred * centred)
        if gather is not None:
            n, mean, squares = merged(gather(xp.concatenate([xp.full(1, n, x.dtype), mean, squares])))
            centred = x - per_channel(mean)
        if n == 1:
            warnings.warn(
                "batch_norm of one value per channel gives its bias, and nothing before it learns; train "
                "with at least two samples at a time",
                stacklevel=2,
            )
        var = squares / max(n, 1)
        if observe is not None:
            observe(mean, var, n)
    else:
        mean, var = statistics
        centred = x - per_channel(mean)
    scale = 1 / xp.sqrt(var + eps)
    value = centred * per_channel(scale * weight)
    value += per_channel(bias)
    wide = once(lambda g: g.reshape(x.shape))
    sums = once(lambda g: (sums_of(g), scale * sums_of(g * centred)))

    def to_x(g: Array) -> Array:
        g, factor = wide(g), per_channel(weight * scale)
        if statistics is not None:
            return (g * factor).reshape(shape)
        total, along = sums(g) if gather is None else xp.sum(xp.stack(gather(xp.stack(sums(g)))), axis=0)
        d = g - per_channel(total / max(n, 1))
        d -= centred * per_channel(scale * along / max(n, 1))
        d *= factor
        return d.reshape(shape)

    return value.reshape(shape), (to_x, lambda g: sums(wide(g))[1].copy(), lambda g: sums(wide(g))[0].copy())


def rows_together(x: Array) -> int:
    """How many rows of (N, C) to take as one of up to 4,096 elements: NumPy is slow along short ones."""
    return math.gcd(len(x), 1 << max(4096 // max(x.shape[1], 1), 1).bit_length() - 1)


def merged(parts: Sequence[Array]) -> tuple[float, Array, Array]:
    """Count, mean and summed squared deviations of a whole from those of its parts, [count, *means, *sums].

    Deviations from the whole's mean are those within the parts and those of the parts' means (Chan, Golub
    and LeVeque 1983): exact for any counts, 0 too, and without the cancellation of E[x^2] - E[x]^2.
    """
    stacked = array_module(parts[0]).stack(parts)
    channels = stacked.shape[1] // 2
    counts, means, squares = stacked[:, :1], stacked[:, 1 : channels + 1], stacked[:, channels + 1 :]
    n = float(counts.sum())
    mean = (counts * means).sum(axis=0) / max(n, 1)
    return n, mean, (squares + counts * (means - mean) ** 2).sum(axis=0)


@op
def layer_norm(x: Array, weight: Array, bias: Array, *, eps: float = 1e-5) -> OpResult:
    """Each sample's last axis with mean 0 and variance 1, times weight, plus bias (Ba et al. 2016)."""
    shape = shape_of(x)[-1:]
    if not shape or not shape_of(weight) == shape_of(bias) == shape:
        raise ValueError(
            f"layer_norm of x {shape_of(x)} needs weights and biases of shape {shape or '(features,)'}, got "
            f"{shape_of(weight)} and {shape_of(bias)}"
        )
    xp, features = array_module(x), shape[0]
    rows = x.reshape(-1, features)

    def means(rows: Array) -> Array:
        factors = xp.full(
            (features, 1), 1 / max(features, 1), rows.dtype if rows.dtype.kind == "f" else float
        )
        return product(rows, factors)

    normal = rows - means(rows)
    scale = 1 / xp.sqrt(means(normal * normal) + eps)
    normal *= scale
    value = normal * weight
    value += bias

    def to_x(g: Array) -> Array:
        d = g.reshape(rows.shape) * weight
        along = means(d * normal)
        d -= means(d)
        d -= normal * along
        d *= scale
        return d.reshape(x.shape)

    def sum_of_rows(g: Array) -> Array:
        return product(xp.ones(len(g), g.dtype), g)

    def to_weight(g: Array) -> Array:
        return sum_of_rows(g.reshape(rows.shape) * normal)

    return value.reshape(x.shape), (to_x, to_weight, lambda g: sum_of_rows(g.reshape(rows.shape)))
