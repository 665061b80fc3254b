"""Images of other sizes, whose pixels are taken or blended from those that were there.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``ops/__init__.py``.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from ..device import Array, array_module
from ..dtypes import floating
from ..faster import faster
from ..lookup import check_choice
from ..memory_order import nchw, nhwc
from ..op import op
from ..pullback import OpResult, shape_of
from .geometry import Pair, pair
from .pool import Pooled
from .shape import chosen

MODES = ["nearest", "nearest-exact", "bilinear"]
LARGEST_DENOMINATOR = 10**6  # of a factor: 1.1666666666666667 is seven sixths

Factors = float | tuple[float, float]


@op
def interpolate(
    x: Array,
    *,
    scale_factor: Factors | None = None,
    size: Pair | None = None,
    mode: str = "nearest",
    align_corners: bool = False,
) -> OpResult:
    """(N, C, H, W) to images of ``size``, or of ``scale_factor`` times their own, rounded down.

    Mode "bilinear" blends the four pixels around the place of an output's pixel. This is (i + 1/2) / s of
    the image for the centre of pixel i, where s is the factor or the ratio of the sizes; with
    ``align_corners`` the outermost centres lie upon one another instead. "nearest-exact" takes the pixel
    that has this place, "nearest" the one that has i / s, as in PyTorch, which rounds them. A factor that
    changes no size changes nothing. Raises ValueError for images without pixels, and unless there is either
    a size or a factor above 0.
    """
    check_choice("mode", mode, MODES)
    if len(shape_of(x)) != 4 or min(x.shape[2:]) < 1:
        raise ValueError(f"interpolate takes images (N, C, H, W) with pixels, got shape {shape_of(x)}")
    if align_corners and mode != "bilinear":
        raise ValueError(f'align_corners goes with mode="bilinear", got mode={mode!r}; leave it out')
    axes = sizes_and_steps(x.shape[2:], size, scale_factor)
    if align_corners:
        axes = [(m, Fraction(n - 1, max(m - 1, 1))) for n, (m, _) in zip(x.shape[2:], axes, strict=True)]
    rows, columns = (Axis(mode, align_corners, n, *axis) for n, axis in zip(x.shape[2:], axes, strict=True))
    y, to_x = by_axes(nhwc(x), rows, columns)
    return nchw(y), (lambda g: nchw(to_x(nhwc(g))),)


def sizes_and_steps(
    image: tuple[int, ...], size: Pair | None, scale_factor: Factors | None
) -> list[tuple[int, Fraction]]:
    """For rows and for columns: how many there will be, and how far apart their centres are in the image."""
    if (size is None) == (scale_factor is None):
        raise ValueError(
            f"interpolate takes either size or scale_factor, got size={size}, scale_factor={scale_factor}"
        )
    if size is not None:
        return [(m, Fraction(n, m)) for n, m in zip(image, pair(size, "size", 1), strict=True)]
    factors: Any = scale_factor if np.iterable(scale_factor) else (scale_factor, scale_factor)
    if len(factors) != 2 or not all(0 < factor < math.inf for factor in factors):
        raise ValueError(f"scale_factor must be one or two numbers above 0, got {scale_factor}")
    sizes = [int(n * float(factor)) for n, factor in zip(image, factors, strict=True)]
    if min(sizes) < 1:
        raise ValueError(
            f"scale_factor {scale_factor} leaves no pixel of images of {image}; use a larger one"
        )
    axes = zip(image, sizes, factors, strict=True)
    return [(m, Fraction(1) if m == n else inverse(float(factor))) for n, m, factor in axes]


@lru_cache(256)
def inverse(factor: float) -> Fraction:
    """One over the decimal number as which ``factor`` is written: 1.1 is eleven tenths."""
    return (1 / Fraction(str(factor))).limit_denominator(LARGEST_DENOMINATOR)


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
def by_axes(x: Array, rows: Axis, columns: Axis) -> Pooled:
    """Images (N, H, W, C) whose columns are resampled first, as rows of an image are long, then the rows."""
    wide, to_columns = resampled(x, columns, 2)
    y, to_rows = resampled(wide, rows, 1)
    return y, lambda g: to_columns(to_rows(g))


def resampled(x: Array, along: Axis, axis: int) -> Pooled:
    """Slices of ``x`` along ``axis``, or blends of two of them."""
    first, second, share = along.places(array_module(x))
    y, to_x = chosen(x, first, axis)
    if along.mode != "bilinear":
        return y, to_x
    z, to_x_too = chosen(x, second, axis)
    share = share.reshape([-1 if i == axis else 1 for i in range(x.ndim)]).astype(floating(x).dtype)
    return y * (1 - share) + z * share, lambda g: to_x(g * (1 - share)) + to_x_too(g * share)
