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
from ..sums import column_dots, column_sums, halved, largest_divisor, row_dots, row_sums
from ..tape import once
from ..tensor import Tensor
from .blocks import in_long_rows, in_rows, is_large
from .elementwise import positive_part, where_positive
from .geometry import nchw, nhwc
from .product import product
from .trailing_axes import over_trailing_axes

P = ParamSpec("P")
Observe = Callable[[Array, Array, float], None]
Gather = Callable[[Array], Sequence[Array]]

LINE = 2048  # elements of rows that are taken as one: three in float32 stay in a cache of 32 KB


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
    relu: bool = False,
) -> OpResult:
    """(x - mean) / sqrt(var + eps) * weight + bias per channel, for x (N, C), (N, C, L) or (N, C, H, W).

    Mean and variance are the batch's own (Ioffe and Szegedy 2015) and passed to ``observe(mean, var,
    count)``, or the constants ``statistics = (mean, var)``. Where other ranks hold the rest of the batch,
    ``gather(array)`` returns all ranks' arrays, the same list everywhere: it is called once forward, with
    2 C + 1 numbers, and once by the gradient of x, with 2 C; the gradients of weight and bias stay
    this rank's sums. With ``relu`` the value is max(y, 0), bit for bit that of ``ops.relu`` behind it. Raises
    ValueError where C differs; warns where a channel has one value, its own mean.
    """
    if len(shape_of(x)) != 2 or not shape_of(weight) == shape_of(bias) == x.shape[1:]:
        raise ValueError(
            f"batch_norm takes x (N, C), (N, C, L) or (N, C, H, W), C weights and C biases, got "
            f"{shape_of(x)}, {shape_of(weight)} and {shape_of(bias)}"
        )
    xp, shape, together = array_module(x), x.shape, rows_together(x)
    n: float = len(x)

    def lines(a: Array) -> Array:
        """(N, C) as few long rows: NumPy is slow along short ones."""
        return xp.ascontiguousarray(a).reshape(shape[0] // together, together * shape[1])

    def line(a: Array) -> Array:
        """Numbers of channels (C,) to go with each row of lines."""
        return a if together == 1 else repeated(a, together)

    def totals(parts: Sequence[Array]) -> Array:
        """The sums of channels (C,) from those of lines."""
        total = parts[0] if len(parts) == 1 else column_sums(xp.stack(parts))
        return total if together == 1 else halved(total.reshape(together, shape[1]))

    x = lines(x if x.dtype.kind == "f" else x.astype(float))

    centred = xp.empty(x.shape, x.dtype if statistics is None else xp.result_type(x, *statistics))

    def centre(mean: Array) -> None:
        """Writes the deviations from the mean."""
        numbers = line(mean)
        in_rows(lambda x, centred: xp.subtract(x, numbers, out=centred), x, centred)

    def squared_deviations(mean: Array) -> Array:
        """Writes the deviations from the mean too, and returns the sums of their squares."""
        numbers = line(mean)

        def squares(x: Array, centred: Array) -> Array:
            xp.subtract(x, numbers, out=centred)
            return channel_dots(centred, centred)

        return totals(in_rows(squares, x, centred))

    if statistics is None:
        mean = totals([channel_sums(x)]) / max(n, 1)
        squares = squared_deviations(mean)
        if gather is not None:
            n, mean, squares = merged(gather(xp.concatenate([xp.full(1, n, x.dtype), mean, squares])))
            centre(mean)
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
        centre(mean)
    scale = 1 / xp.sqrt(var + eps)
    factor = scale * weight
    slope, shift = line(factor), line(bias)
    value = xp.empty(x.shape, xp.result_type(centred, factor))

    def scaled(centred: Array, y: Array) -> None:
        xp.multiply(centred, slope, out=y)
        y += shift
        if relu:
            positive_part(y, out=y)

    in_rows(scaled, centred, value)
    fixed, y = statistics is not None, value if relu else None

    def before_relu(g: Array) -> Array:
        """The gradient of y before the ReLU, as lines."""
        return lines(g) if y is None else where_positive(lines(g), y)

    def both_sums(g: Array) -> list[Array]:
        """The sums of that gradient and of its products with the deviations; with a ReLU, itself too."""
        g = lines(g)
        masks = () if y is None else (y, xp.empty(g.shape, g.dtype))

        def sums_of_rows(g: Array, centred: Array, *masks: Array) -> tuple[Array, Array]:
            d = where_positive(g, *masks) if masks else g
            return channel_sums(d), channel_dots(d, centred)

        total, along = map(totals, zip(*in_rows(sums_of_rows, g, centred, *masks), strict=True))
        return [total, scale * along, *masks[1:]]

    sums = once(both_sums)

    def to_x(g: Array) -> Array:
        if fixed:
            return (before_relu(g) * slope).reshape(shape)
        shared = sums(g)
        part = shared.pop() if len(shared) == 3 else before_relu(g)  # a pullback keeps no result of another
        total, along = shared if gather is None else xp.sum(xp.stack(gather(xp.stack(shared))), axis=0)
        numbers = line(scale * along / max(n, 1)), line(total / max(n, 1))

        def write(g: Array, centred: Array, d: Array) -> None:
            """slope * (g - (centred * along + mean))"""
            along, mean = numbers
            shares = d if y is None else xp.empty(d.shape, d.dtype)
            xp.multiply(centred, along, out=shares)
            shares += mean
            xp.subtract(g, shares, out=d)
            xp.multiply(d, slope, out=d)

        d = part if y is not None else xp.empty(centred.shape, xp.result_type(g, factor))
        in_rows(write, part, centred, d)
        return d.reshape(shape)

    return value.reshape(shape), (to_x, lambda g: sums(g)[1].copy(), lambda g: sums(g)[0].copy())


def channel_sums(x: Array) -> Array:
    """The sums of the columns of (N, C); on a GPU as a product, which a stream that is captured can take."""
    xp = array_module(x)
    return column_sums(x) if xp is np else product(xp.ones(x.shape[0], x.dtype), x)


def channel_dots(x: Array, y: Array) -> Array:
    """The sums of the columns of x * y."""
    return column_dots(x, y) if array_module(x) is np else channel_sums(x * y)


def rows_together(x: Array) -> int:
    """How many short rows of (N, C) on the host are taken as one, of up to 4,096 elements."""
    short = array_module(x) is np and 0 < x.shape[1] < 256
    return largest_divisor(len(x), LINE // x.shape[1]) if short else 1


def repeated(a: Array, count: int) -> Array:
    """Numbers (..., C) side by side so many times, (..., count C), as ``tile`` in a quarter of its time."""
    xp = array_module(a)
    copies = xp.empty((*a.shape[:-1], count, a.shape[-1]), a.dtype)
    copies[...] = a[..., None, :]
    return copies.reshape(*a.shape[:-1], count * a.shape[-1])


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
    xp, shape, rows = array_module(x), x.shape, x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
    rows = xp.ascontiguousarray(rows if x.dtype.kind == "f" else rows.astype(float))
    normal, scale = xp.empty_like(rows), xp.empty((len(rows), 1), rows.dtype)
    value = xp.empty(rows.shape, xp.result_type(rows, weight))

    def normalize(x: Array, normal: Array, scale: Array, y: Array) -> None:
        xp.subtract(x, row_means(x), out=normal)
        xp.divide(1, xp.sqrt(row_means(normal, normal) + eps), out=scale)
        normal *= scale
        with_row(xp.multiply, normal, weight, y)
        with_row(xp.add, y, bias, y)

    def slope(g: Array, normal: Array, scale: Array, d: Array) -> None:
        with_row(xp.multiply, g, weight, d)
        along = row_means(d, normal)
        d -= row_means(d)
        d -= normal * along
        d *= scale

    in_rows(normalize, rows, normal, scale, value)

    def to_x(g: Array) -> Array:
        d = xp.empty(normal.shape, xp.result_type(g, weight))
        in_rows(slope, xp.ascontiguousarray(g).reshape(normal.shape), normal, scale, d)
        return d.reshape(shape)

    def to_weight(g: Array) -> Array:
        g = g.reshape(normal.shape)
        return column_dots(g, normal) if xp is np else g * normal

    def to_bias(g: Array) -> Array:
        return column_sums(g.reshape(normal.shape)) if xp is np else g

    return value.reshape(shape), (to_x, to_weight, to_bias)


def with_row(function: Callable[..., Any], x: Array, row: Array, out: Array) -> None:
    """``function(x, row, out=out)``, such as a product, of arrays (N, C) without gaps and a row (C,).

    Of large arrays some rows are taken as one, with copies of ``row``, which NumPy would else repeat in its
    buffer: a product of 4,096 x 256 takes 0.09 ms, not 0.15.
    """
    together = largest_divisor(len(x), LINE // x.shape[1]) if is_large(x) else 0
    if together < 2:
        function(x, row, out=out)
        return
    lines, lines_out = (a.reshape(len(x) // together, together * row.size) for a in (x, out))
    with in_long_rows(lines, row, out):
        function(lines, repeated(row, together), out=lines_out)


def row_means(x: Array, y: Array | None = None) -> Array:
    """The means of x, or of x * y, over their last axis, which is kept as 1."""
    if array_module(x) is not np:
        return (x if y is None else x * y).mean(axis=-1, keepdims=True)
    sums = row_sums(x) if y is None else row_dots(x, y)
    return (sums / max(x.shape[-1], 1))[:, None]
