"""Images of another size: adaptive pooling, and interpolation, whose pixels are copies or blends.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``ops/__init__.py``.

>>> from minigrad import ops
>>> ops.adaptive_avg_pool2d([[[[1.0, 3.0]]]], output_size=1).data.tolist()
[[[[2.0]]]]
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache, partial
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from ..integer_settings import Pair, pair
from ..memory_order import nchw, nhwc
from ..op import Array, OpResult, array_module, check_choice, faster, floating, half_in_single, op, shape_of
from .geometry import Geometry
from .pool import Pooled, max_of_windows
from .shape import chosen

Sizes = int | tuple[int | None, int | None]
Factors = float | tuple[float, float]


@op
@half_in_single
@faster
def adaptive_avg_pool2d(x: Array, *, output_size: Sizes) -> OpResult:
    """The means of windows that make (N, C, H, W) to (N, C, *output_size); None leaves a size as it is.

    Of n windows on m pixels window i goes from i m / n to (i + 1) m / n, rounded outwards, so windows overlap
    where n does not divide m. Raises ValueError for other shapes and for images without pixels.
    """
    sizes = rows_and_columns(x, output_size)
    y, to_x = along_axes(partial(in_each_window, mean), nhwc(floating(x)), *sizes)
    return nchw(y), (lambda g: nchw(to_x(nhwc(g))),)


@op
@half_in_single
@faster
def adaptive_max_pool2d(x: Array, *, output_size: Sizes) -> OpResult:
    """The largest elements of the windows of ``adaptive_avg_pool2d``, with the gradient of ``max_pool2d``."""
    sizes = rows_and_columns(x, output_size)
    y, to_x = along_axes(partial(in_each_window, largest), nhwc(x), *sizes)
    return nchw(y), (lambda g: nchw(to_x(nhwc(g))),)


def rows_and_columns(x: Array, output_size: Sizes) -> tuple[int, int]:
    """How many rows and columns the output for images x has."""
    if x.ndim != 4 or min(x.shape[2:]) < 1:
        raise ValueError(f"pooling takes images (N, C, H, W) with pixels, got shape {x.shape}")
    sizes: Any = output_size if np.iterable(output_size) else (output_size, output_size)
    if len(sizes) == 2:
        sizes = tuple(n if size is None else size for n, size in zip(x.shape[2:], sizes, strict=True))
    return pair(sizes, "output_size", 1)


def in_each_window(pool: Callable[[Array, int], Pooled], x: Array, count: int, axis: int) -> Pooled:
    """``pool`` along ``axis`` of each of ``count`` windows on it."""
    xp, shape = array_module(x), x.shape
    windows = [(slice(None),) * axis + (span,) for span in spans(shape[axis], count)]
    values, pullbacks = zip(*(pool(x[window], axis) for window in windows), strict=True)

    def to_x(g: Array) -> Array:
        d = xp.zeros(shape, g.dtype)
        for window, pullback, part in zip(windows, pullbacks, xp.split(g, count, axis), strict=True):
            d[window] += pullback(part)
        return d

    return xp.concatenate(values, axis), to_x


def spans(n: int, count: int) -> list[slice]:
    """``count`` windows on ``n`` pixels, by PyTorch's rule."""
    return [slice(i * n // count, -(-(i + 1) * n // count)) for i in range(count)]


def mean(x: Array, axis: int) -> Pooled:
    """The mean along ``axis``, which keeps one element."""
    xp, shape = array_module(x), x.shape
    return x.mean(axis=axis, keepdims=True), lambda g: xp.broadcast_to(g / shape[axis], shape)


def largest(x: Array, axis: int) -> Pooled:
    """The largest element along ``axis``, which keeps one element."""
    whole = (x.shape[1], 1) if axis == 1 else (1, x.shape[2])
    return max_of_windows(x, Geometry(whole, whole, (0, 0), (1, 1)))


@op
@half_in_single
def interpolate(
    x: Array,
    *,
    scale_factor: Factors | None = None,
    size: Pair | None = None,
    mode: str = "nearest",
    align_corners: bool = False,
) -> OpResult:
    """(N, C, H, W) to images of ``size``, or of ``scale_factor`` times their size, rounded down.

    Mode "bilinear" blends the four pixels around the place of an output's pixel. This is (i + 1/2) / s of
    the image for the centre of pixel i, where s is the factor or the ratio of the sizes; with
    ``align_corners`` the outermost centres lie upon one another instead. "nearest-exact" takes the pixel
    that has this place, "nearest" the one that has i / s, as in PyTorch, which rounds them. A factor that
    changes no size changes nothing. Raises ValueError for images without pixels, and unless there is either
    a size or a factor above 0.
    """
    check_choice("mode", mode, ["nearest", "nearest-exact", "bilinear"])
    if len(shape_of(x)) != 4 or min(x.shape[2:]) < 1:
        raise ValueError(f"interpolate takes images (N, C, H, W) with pixels, got shape {shape_of(x)}")
    if align_corners and mode != "bilinear":
        raise ValueError(f'align_corners goes with mode="bilinear", got mode={mode!r}; leave it out')
    axes = axes_of_images(x.shape[2:], size, scale_factor)
    if align_corners:
        axes = [(n, m, Fraction(n - 1, max(m - 1, 1))) for n, m, _ in axes]
    rows, columns = (Axis(mode, align_corners, *axis) for axis in axes)
    y, to_x = interpolate_by_axes(nhwc(x), rows, columns)
    return nchw(y), (lambda g: nchw(to_x(nhwc(g))),)


def axes_of_images(
    image: tuple[int, ...], size: Pair | None, scale_factor: Factors | None
) -> list[tuple[int, int, Fraction]]:
    """For rows and columns: how many there are and will be, and how far apart centres are in the image."""
    if (size is None) == (scale_factor is None):
        raise ValueError(
            f"interpolate takes either size or scale_factor, got size={size}, scale_factor={scale_factor}"
        )
    if size is not None:
        return [(n, m, Fraction(n, m)) for n, m in zip(image, pair(size, "size", 1), strict=True)]
    factors: Any = scale_factor if np.iterable(scale_factor) else (scale_factor, scale_factor)
    if len(factors) != 2 or not all(0 < factor < math.inf for factor in factors):
        raise ValueError(f"scale_factor must be one or two numbers above 0, got {scale_factor}")
    axes = [(n, int(n * float(factor)), float(factor)) for n, factor in zip(image, factors, strict=True)]
    if min(m for _, m, _ in axes) < 1:
        raise ValueError(
            f"scale_factor {scale_factor} leaves no pixel of images of {image}; use a larger one"
        )
    return [(n, m, Fraction(1) if m == n else inverse(factor)) for n, m, factor in axes]


@lru_cache(256)
def inverse(factor: float) -> Fraction:
    """One over the decimal number as which ``factor`` is written: 1.1 is eleven tenths."""
    return (1 / Fraction(str(factor))).limit_denominator(10**6)  # 1.1666666666666667 is seven sixths


class Axis(NamedTuple):
    """``n`` pixels that become ``m``, whose places in the image are ``step`` apart."""

    mode: str
    align_corners: bool
    n: int
    m: int
    step: Fraction

    def places(self, xp: ModuleType) -> tuple[Array, Array, Array]:
        """For each of the ``m`` pixels, two of the ``n``, which it blends, and the share of the second one.

        Where it is one pixel, both are this one: 0 times another one, were that infinite, would be NaN.
        Computed with integers, so exactly, and without a copy from the host to a GPU.
        """
        i, (over, under) = xp.arange(self.m), self.step.as_integer_ratio()
        if self.mode == "nearest" or self.align_corners:
            place = i * over
        elif self.mode == "nearest-exact":
            place, under = (2 * i + 1) * over, 2 * under
        else:
            place, under = xp.maximum((2 * i + 1) * over - under, 0), 2 * under
        first, rest = xp.minimum(place // under, self.n - 1), place % under
        second = first if self.mode != "bilinear" else xp.minimum(first + (rest > 0), self.n - 1)
        return first, second, xp.where(second > first, rest / under, 0.5)


@faster
def interpolate_by_axes(x: Array, rows: Axis, columns: Axis) -> Pooled:
    """Images (N, H, W, C) of another size."""
    return along_axes(resampled, x, rows, columns)


def resampled(x: Array, along: Axis, axis: int) -> Pooled:
    """Slices of ``x`` along ``axis``, or blends of two of them."""
    first, second, share = along.places(array_module(x))
    y, to_x = chosen(x, first, axis)
    if along.mode != "bilinear":
        return y, to_x
    z, to_x_too = chosen(x, second, axis)
    share = share.reshape([-1 if i == axis else 1 for i in range(x.ndim)]).astype(floating(x).dtype)
    return y * (1 - share) + z * share, lambda g: to_x(g * (1 - share)) + to_x_too(g * share)


def along_axes(step: Callable[[Array, Any, int], Pooled], x: Array, rows: Any, columns: Any) -> Pooled:
    """``step`` along the columns, as rows of an image are long, then along the rows.

    So the first of equal elements is the first in reading order.
    """
    narrow, to_x = step(x, columns, 2)
    y, to_narrow = step(narrow, rows, 1)
    return y, lambda g: to_x(to_narrow(g))
