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
from ..sums import column_dots, column_sums, row_dots, row_sums
from ..tape import once
from ..tensor import Tensor
from .blocks import in_rows, unbuffered
from .geometry import nchw, nhwc
from .product import product
from .trailing_axes import over_trailing_axes

P = ParamSpec("P")
Observe = Callable[[Array, Array, float], None]
Gather = Callable[[Array], Sequence[Array]]


def channelwise(function: Callable[P, OpResult]) -> Callable[P, Tensor]:
    """``op`` of a function of (N, C) arrays; it gets images as pixels, (N H W, C).

    Signals (N, C, L) are images of one row. Pixels lie so in memory where images are channels-last.
    """

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

    return op(of_signals(of_images))


def of_signals(function: Callable[P, OpResult]) -> Callable[P, OpResult]:
    """``function`` of images, which takes signals (N, C, L) too."""

    @wraps(function)
    def with_row(x: Array, *arrays: Any, **settings: Any) -> OpResult:
        if len(shape_of(x)) != 3:
            return cast(Any, function)(x, *arrays, **settings)
        value, (to_x, *others) = cast(Any, function)(x[:, :, None], *arrays, **settings)
        image = once(lambda g: g[:, :, None])  # one array for all, so that they share their sums
        to_others = [wraps(pull)(lambda g, pull=pull: pull(image(g))) for pull in others]
        return value[:, :, 0], (wraps(to_x)(lambda g: to_x(image(g))[:, :, 0]), *to_others)

    return cast("Callable[P, OpResult]", with_row)


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
    """(x - mean) / sqrt(var + eps) * weight + bias per channel, for x (N, C), (N, C, L) or (N, C, H, W).

    Mean and variance are the batch's own (Ioffe and Szegedy 2015) and passed to ``observe(mean, var,
    count)``, or the constants ``statistics = (mean, var)``. Where other ranks hold the rest of the batch,
    ``gather(array)`` returns all ranks' arrays, the same list everywhere: it is called once forward, with
    2 C + 1 numbers, and once by the gradient of x, with 2 C; the gradients of weight and bias stay
    this rank's sums. Raises ValueError where C differs; warns where a channel has one value, its own mean.
    """
    if len(shape_of(x)) != 2 or not shape_of(weight) == shape_of(bias) == x.shape[1:]:
        raise ValueError(
            f"batch_norm takes x (N, C), (N, C, L) or (N, C, H, W), C weights and C biases, got "
            f"{shape_of(x)}, {shape_of(weight)} and {shape_of(bias)}"
        )
    xp, shape, rows = array_module(x), x.shape, rows_together(x)
    n: float = len(x)

    def wide(x: Array) -> Array:
        return x.reshape(shape[0] // rows, rows * shape[1])

    def per_channel(a: Array) -> Array:
        return a if rows == 1 else xp.tile(a, rows)

    def channel_dots(x: Array, y: Array) -> Array:
        x, y = x.reshape(shape), y.reshape(shape)
        return column_dots(x, y) if xp is np else channel_sums(x * y)

    def deviations(mean: Array) -> Array:
        return in_rows(xp.subtract, wide(x), per_channel(mean))

    if statistics is None:
        mean = channel_sums(x) / max(n, 1)
        centred = deviations(mean)
        squares = channel_dots(centred, centred)
        if gather is not None:
            n, mean, squares = merged(gather(xp.concatenate([xp.full(1, n, x.dtype), mean, squares])))
            centred = deviations(mean)
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
        centred = deviations(mean)
    scale = 1 / xp.sqrt(var + eps)
    value = in_rows(scaled, centred, per_channel(scale * weight), per_channel(bias))
    sums = once(lambda g: (channel_sums(g), scale * channel_dots(g, centred)))
    fixed = statistics is not None

    def to_x(g: Array) -> Array:
        factor = weight * scale
        if fixed:
            return (wide(g) * per_channel(factor)).reshape(shape)
        total, along = sums(g) if gather is None else xp.sum(xp.stack(gather(xp.stack(sums(g)))), axis=0)
        numbers = factor, factor * total / max(n, 1), factor * scale * along / max(n, 1)
        return in_rows(combined, wide(g), centred, *map(per_channel, numbers)).reshape(shape)

    return value.reshape(shape), (to_x, lambda g: sums(g)[1].copy(), lambda g: sums(g)[0].copy())


def scaled(x: Array, factor: Array, shift: Array, *, out: Array | None = None) -> Array:
    """x * factor + shift"""
    y = array_module(x).multiply(x, factor, out=out)
    y += shift
    return y


def combined(
    g: Array, x: Array, factor: Array, shift: Array, slope: Array, *, out: Array | None = None
) -> Array:
    """g * factor - shift - x * slope"""
    d = array_module(g).multiply(g, factor, out=out)
    d -= shift
    d -= x * slope
    return d


def channel_sums(x: Array) -> Array:
    """The sums of the columns of (N, C); on a GPU as a product, which a stream that is captured can take."""
    xp = array_module(x)
    return column_sums(x) if xp is np else product(xp.ones(x.shape[0], x.dtype), x)


def rows_together(x: Array) -> int:
    """How many rows of (N, C) are taken as one of up to 4,096 elements: NumPy is slow along short ones."""
    if array_module(x) is not np or not x.flags.c_contiguous or x.shape[1] >= 256:
        return 1
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
@over_trailing_axes
def layer_norm(x: Array, weight: Array, bias: Array, *, eps: float = 1e-5) -> OpResult:
    """Each sample's last axes with mean 0 and variance 1, times weight, plus bias (Ba et al. 2016).

    How many axes says weight, which has their shape. Raises ValueError where that differs.
    """
    xp, rows = array_module(x), x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
    normal = in_rows(xp.subtract, rows, row_means(rows))
    scale = 1 / xp.sqrt(row_means(normal, normal) + eps)
    with unbuffered(normal, scale):
        normal *= scale

    def slope(g: Array, normal: Array, scale: Array, weight: Array, *, out: Array | None = None) -> Array:
        d = xp.multiply(g, weight, out=out)
        along = row_means(d, normal)
        d -= row_means(d)
        d -= normal * along
        d *= scale
        return d

    def to_x(g: Array) -> Array:
        return in_rows(slope, g.reshape(rows.shape), normal, scale, weight).reshape(x.shape)

    def to_weight(g: Array) -> Array:
        g = g.reshape(rows.shape)
        return column_dots(g, normal) if xp is np else g * normal

    def to_bias(g: Array) -> Array:
        return column_sums(g.reshape(rows.shape)) if xp is np else g

    value = in_rows(scaled, normal, weight, bias).reshape(x.shape)
    return value, (to_x, to_weight, to_bias)


def row_means(x: Array, y: Array | None = None) -> Array:
    """The means of x, or of x * y, over their last axis, which is kept as 1."""
    if array_module(x) is not np:
        return (x if y is None else x * y).mean(axis=-1, keepdims=True)
    sums = row_sums(x) if y is None else row_dots(x, y)
    return (sums / max(x.shape[-1], 1))[:, None]
