"""Pooling of images, (N, C, H, W) to the reader and channels-last in memory.

Lecture section: back-propagation. Lesson: 02_backpropagation.

>>> from minigrad import ops
>>> ops.max_pool2d([[[[1.0, 2.0], [3.0, 4.0]]]], kernel=2).data.tolist()
[[[[4.0]]]]
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce

import numpy as np

from ..integer_settings import Pair, pair
from ..memory_order import nchw, nhwc
from ..op import Array, OpResult, array_module, faster, floating, half_in_single, op
from .geometry import Geometry, add_at_taps, check_windows_fit, taps

Pooled = tuple[Array, Callable[[Array], Array]]  # (N, H, W, C) images, and the pullback to what was pooled


def pool_geometry(
    x: Array, kernel: Pair, stride: Pair | None, padding: Pair, dilation: Pair = 1, ceil_mode: bool = False
) -> Geometry:
    """The windows on images x (N, C, H, W) that the settings of a pool describe; raises ValueError."""
    if x.ndim != 4:
        raise ValueError(f"pooling takes images (N, C, H, W), got shape {x.shape}")
    sizes, border = pair(kernel, "kernel", 1), pair(padding, "padding", 0)
    steps = sizes if stride is None else pair(stride, "stride", 1)
    geometry = Geometry(sizes, steps, border, pair(dilation, "dilation", 1))
    extra = []
    if ceil_mode or any(border):
        for n, extent, step, p in zip(x.shape[2:], geometry.extent, steps, border, strict=True):
            if 2 * p > extent:
                raise ValueError(
                    f"padding {border} is more than half of the window {geometry.extent}; use less padding"
                )
            if ceil_mode:
                last = min(-(-(n + 2 * p - extent) // step), (n + p - 1) // step)  # window that begins before
                extra.append(max(last * step + extent - n - 2 * p, 0))
    if ceil_mode:
        geometry = geometry._replace(extra=(extra[0], extra[1]))
    check_windows_fit(x.shape[2:], geometry)
    return geometry


@op
@half_in_single
def max_pool2d(
    x: Array,
    *,
    kernel: Pair,
    stride: Pair | None = None,
    padding: Pair = 0,
    dilation: Pair = 1,
    ceil_mode: bool = False,
) -> OpResult:
    """The largest element of each window; NaN counts as largest. ``stride`` defaults to ``kernel``.

    With ``ceil_mode`` a last window may reach out of the images. The gradient goes to the first largest in
    reading order, or to the last NaN, as in PyTorch.
    """
    geometry = pool_geometry(x, kernel, stride, padding, dilation, ceil_mode)
    y, to_x = max_of_windows(nhwc(x), geometry)
    return nchw(y), (lambda g: nchw(to_x(nhwc(g))),)


@faster
def max_of_windows(x: Array, geometry: Geometry) -> Pooled:
    """The largest element of each window on images x (N, H, W, C).

    The gradient goes to the first tap that sees it on a pixel, not on the border, or the last that sees NaN.
    """
    xp, shape, values = array_module(x), x.shape, taps(x, geometry, border=lowest(x))
    y = reduce(xp.maximum, values)

    def to_x(g: Array) -> Array:
        pixels, winner = taps(xp.ones((1, *shape[1:3], 1), bool), geometry, border=False), -1
        for i, (value, is_pixel) in enumerate(zip(values, pixels, strict=True)):
            first = (value == y) & is_pixel & (winner == -1)
            winner = xp.where(first | xp.isnan(value), i, winner)
        shares = (xp.where(winner == i, g, 0) for i in range(len(values)))
        return add_at_taps(xp.zeros(shape, g.dtype), shares, geometry)

    return y, to_x


def lowest(x: Array) -> float:
    """What is no larger than any element of ``x``."""
    if x.dtype.kind == "b":
        return False
    return -math.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min


@op
@half_in_single
def avg_pool2d(
    x: Array,
    *,
    kernel: Pair,
    stride: Pair | None = None,
    padding: Pair = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> OpResult:
    """The mean of each window. ``stride`` defaults to ``kernel``.

    Padding counts as zeros, or, without ``count_include_pad``, not at all. With ``ceil_mode`` a last window
    may reach out of the images and their padding; what is there does not count.
    """
    geometry = pool_geometry(x, kernel, stride, padding, ceil_mode=ceil_mode)
    y, to_x = mean_of_windows(nhwc(floating(x)), geometry, count_include_pad)
    return nchw(y), (lambda g: nchw(to_x(nhwc(g))),)


@faster
def mean_of_windows(x: Array, geometry: Geometry, count_include_pad: bool) -> Pooled:
    """The mean of each window on images x (N, H, W, C)."""
    xp, shape, size = array_module(x), x.shape, elements_of_windows(x, geometry, count_include_pad)

    def to_x(g: Array) -> Array:
        shares = [g / size] * math.prod(geometry.kernel)
        return add_at_taps(xp.zeros(shape, g.dtype), shares, geometry)

    return sum(taps(x, geometry)) / size, to_x


def elements_of_windows(x: Array, geometry: Geometry, count_include_pad: bool) -> Array | int:
    """How many elements of x, and of its padding, count: one number for all windows, or (1, H', W', 1)."""
    if not any(geometry.extra) and (count_include_pad or not any(geometry.padding)):
        return math.prod(geometry.kernel)
    (ph, pw), (_, height, width, _) = geometry.padding, x.shape
    if count_include_pad:  # as pixels of larger images
        height, width, geometry = height + 2 * ph, width + 2 * pw, geometry._replace(padding=(0, 0))
    return sum(taps(array_module(x).ones((1, height, width, 1), x.dtype), geometry))
