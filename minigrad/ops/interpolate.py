"""Images of other sizes, whose pixels are taken or blended from those that were there.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``ops/__init__.py``.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from ..device import Array, array_module
from ..lookup import check_choice
from ..op import OpResult, Pullback, op, shape_of
from .enlarge import MODES
from .geometry import Pair, nchw, nhwc, pair
from .shape import chosen

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
    check_choice("mode", mode, list(MODES))
    if len(shape_of(x)) != 4 or min(x.shape[2:]) < 1:
        raise ValueError(f"interpolate takes images (N, C, H, W) with pixels, got shape {shape_of(x)}")
    if align_corners and mode != "bilinear":
        raise ValueError(f'align_corners goes with mode="bilinear", got mode={mode!r}; leave it out')
    axes = sizes_and_steps(x.shape[2:], size, scale_factor)
    if not align_corners and all(step.numerator == 1 for _, step in axes):
        larger, smaller = MODES[mode]
        down, across = (step.denominator for _, step in axes)
        return nchw(larger(nhwc(x), (down, across))), (lambda g: nchw(smaller(nhwc(g), (down, across))),)
    if align_corners:
        axes = [(m, Fraction(n - 1, max(m - 1, 1))) for n, (m, _) in zip(x.shape[2:], axes, strict=True)]
    rows, columns = (
        [taps_of(mode, n, i, step, align_corners) for i in range(m)]
        for n, (m, step) in zip(x.shape[2:], axes, strict=True)
    )
    wide, to_columns = resampled(nhwc(x), columns, 2)  # first, as rows of an image are long
    y, to_rows = resampled(wide, rows, 1)
    return nchw(y), (lambda g: nchw(to_columns(to_rows(nhwc(g)))),)


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
    return 1 / Fraction(str(factor))


def taps_of(mode: str, n: int, i: int, step: Fraction, align_corners: bool) -> tuple[int, int, float]:
    """Two of ``n`` pixels, which pixel i of the output blends, and the share of the second one."""
    if mode != "bilinear":
        first = min(int((i + Fraction(mode == "nearest-exact", 2)) * step), n - 1)
        return first, first, 0.0
    place = i * step if align_corners else max((i + Fraction(1, 2)) * step - Fraction(1, 2), Fraction(0))
    first = min(int(place), n - 1)
    return first, min(first + 1, n - 1), float(place - first)


def resampled(x: Array, taps: list[tuple[int, int, float]], axis: int) -> tuple[Array, Pullback]:
    """Slices of ``x`` along ``axis``, or blends of two of them."""
    xp, (first, second, shares) = array_module(x), (np.array(values) for values in zip(*taps, strict=True))
    y, to_x = chosen(x, xp.asarray(first), axis)
    if not shares.any():
        return y, to_x
    z, to_x_too = chosen(x, xp.asarray(second), axis)
    share = xp.asarray(shares.reshape([-1 if i == axis else 1 for i in range(x.ndim)]))
    share = share.astype(x.dtype if x.dtype.kind == "f" else float)
    return y * (1 - share) + z * share, lambda g: to_x(g * (1 - share)) + to_x_too(g * share)
