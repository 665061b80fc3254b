"""Pooling of images, (N, C, H, W) to the reader and channels-last in memory.

Each pool stands as calls on whole arrays, and beside it as loops, in ``window_loops.py``.
Lecture section: back-propagation. Lesson: 02_backpropagation.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from types import ModuleType

import numpy as np

from .. import loops
from ..device import Array, array_module, on_gpu
from ..op import OpResult, op
from .elementwise import floating
from .geometry import Geometry, Pair, bordered, check_windows_fit, nchw, nhwc, pair
from .pool_kernels import MOST_PLACES, max_of_places
from .window_loops import Pooled, max_by_loops, means_by_loops

Place = tuple[slice, ...]


@op
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

    With ``ceil_mode`` a last window may stand out of the images. The gradient goes to the first largest in
    reading order, or to the last NaN, as in PyTorch.
    """
    geometry, images = pool_geometry(x, kernel, stride, padding, dilation, ceil_mode), nhwc(x)
    _, _, height, width = x.shape
    if loops.can_take(images):
        y, to_x = max_by_loops(images, lambda: tables_and_taps(geometry, height, width))
    else:
        y, to_x = (max_on_gpu if on_gpu(x) else max_of_windows)(images, geometry)
    return nchw(y), (lambda g: nchw(to_x(nhwc(g))),)


def lowest(x: Array) -> float:
    """What is no larger than any element of ``x``."""
    if x.dtype.kind == "b":
        return False
    return -math.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min


def max_of_windows(x: Array, geometry: Geometry) -> Pooled:
    """Any windows on (N, H, W, C) images: the readable form."""
    xp, shape, padded = array_module(x), x.shape, bordered(x, geometry, lowest(x))
    places, first = windows(x, geometry), first_pixels(xp, geometry, *x.shape[1:3])
    y = padded[places[0]]
    for place in places[1:]:
        y = xp.maximum(y, padded[place])

    def to_x(g: Array) -> Array:
        d = xp.zeros(padded.shape, g.dtype)
        for place, share in zip(places, shares_of_largest(g, padded, places, first), strict=True):
            d[place] += share
        return without_border(d, shape, geometry)

    return y, to_x


def shares_of_largest(g: Array, x: Array, places: list[Place], first: Array | int = 0) -> Iterator[Array]:
    """Each place's part of the windows' gradient g: all of it for the first largest or the last NaN, or 0.

    ``first`` is the number of each window's first place that is no border.
    """
    xp = array_module(x)
    largest, taker = x[places[0]], xp.broadcast_to(xp.asarray(first), g.shape)
    for i, place in enumerate(places):
        larger = (x[place] > largest) | xp.isnan(x[place])
        largest, taker = xp.where(larger, x[place], largest), xp.where(larger, i, taker)
    for i in range(len(places)):
        yield xp.where(taker == i, g, 0)


def without_border(d: Array, shape: tuple[int, ...], geometry: Geometry) -> Array:
    """The images of this shape in ``d``, which have the border of ``geometry``."""
    (ph, pw), (_, height, width, _) = geometry.padding, shape
    return d[:, ph : ph + height, pw : pw + width]


def max_on_gpu(x: Array, geometry: Geometry) -> Pooled:
    """One kernel each way where windows are small, and more where they overlap."""
    if math.prod(geometry.kernel) > MOST_PLACES:
        return max_of_windows(x, geometry)
    shape, padded = x.shape, bordered(x, geometry, lowest(x))
    apart = all(s >= e for s, e in zip(geometry.stride, geometry.extent, strict=True))
    first = 0
    if any(geometry.padding):
        first = first_pixels(array_module(x), geometry, *shape[1:3]).astype(np.uint8)
    y, to_padded = max_of_places(padded, windows(x, geometry), apart, first)
    return y, (lambda g: without_border(to_padded(g), shape, geometry))


@op
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
    may stand out of the images and their padding; what is there does not count.
    """
    geometry, images = pool_geometry(x, kernel, stride, padding, 1, ceil_mode), nhwc(floating(x))
    _, _, height, width = x.shape
    if loops.can_take(images):
        y, to_x = means_by_loops(images, lambda: tables_of_means(geometry, height, width, count_include_pad))
    elif are_tiles(geometry, height, width):
        y, to_x = mean_of_tiles(images, geometry)
    else:
        y, to_x = mean_of_windows(images, geometry, count_include_pad)
    return nchw(y), (lambda g: nchw(to_x(nhwc(g))),)


def mean_of_windows(x: Array, geometry: Geometry, count_include_pad: bool) -> Pooled:
    """Any windows on (N, H, W, C) images: the readable form."""
    padded, places = bordered(x, geometry), windows(x, geometry)
    divisor, shape, of_padded = elements_of_windows(x, geometry, count_include_pad), x.shape, padded.shape
    y = sum(padded[place] for place in places) / divisor

    def to_x(g: Array) -> Array:
        d, share = array_module(g).zeros(of_padded, g.dtype), g / divisor
        for place in places:
            d[place] += share
        return without_border(d, shape, geometry)

    return y, to_x


def elements_of_windows(x: Array, geometry: Geometry, count_include_pad: bool) -> Array | int:
    """How many elements of images x and of their padding count in each window: (H', W', 1), or one number."""
    if not any(geometry.extra) and (count_include_pad or not any(geometry.padding)):
        return math.prod(geometry.kernel)
    _, height, width, _ = x.shape
    rows, columns = window_tables(array_module(x), geometry, height, width, count_include_pad)
    return (rows[:, 2, None, None] * columns[:, 2, None]).astype(x.dtype)


def are_tiles(geometry: Geometry, height: int, width: int) -> bool:
    """Whether windows stand side by side on images of this size, and cover all of them."""
    apart = geometry.stride == geometry.kernel and geometry.padding == (0, 0)
    return apart and not (height % geometry.kernel[0] or width % geometry.kernel[1])


def mean_of_tiles(x: Array, geometry: Geometry) -> Pooled:
    """Windows that are tiles: each element gets the gradient of one window, and nothing is added."""
    xp, shape, (kh, kw) = array_module(x), x.shape, geometry.kernel
    n, height, width, channels = shape
    tiles = n, height // kh, kh, width // kw, kw, channels
    y = x.reshape(tiles).mean(axis=(2, 4), dtype=x.dtype)

    def to_x(g: Array) -> Array:
        share = (g / (kh * kw))[:, :, None, :, None]
        return xp.ascontiguousarray(xp.broadcast_to(share, tiles)).reshape(shape)

    return y, to_x


@lru_cache(256)  # to make them takes as long as pooling a small image
def tables_of_means(
    geometry: Geometry, height: int, width: int, count_include_pad: bool
) -> tuple[np.ndarray, np.ndarray]:
    """The windows of rows and of columns, for ``means_by_loops``."""
    return window_tables(np, geometry, height, width, count_include_pad)


@lru_cache(256)
def tables_and_taps(geometry: Geometry, height: int, width: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The same, and how far each tap is from the first one of its window, for ``max_by_loops``."""
    taps = np.array([*np.ndindex(geometry.kernel)]) * geometry.dilation
    return *window_tables(np, geometry, height, width, count_include_pad=True), taps


def window_tables(
    xp: ModuleType, geometry: Geometry, height: int, width: int, count_include_pad: bool
) -> tuple[Array, Array]:
    """For each window, along rows and columns: first pixel, end on the image, pixels that count in a mean."""
    tables = []
    for axis, (n, count) in enumerate(zip((height, width), geometry.output(height, width), strict=True)):
        kernel, stride, padding, dilation = (both[axis] for both in geometry[:4])
        first, border = xp.arange(count) * stride - padding, padding if count_include_pad else 0
        stop = first + dilation * (kernel - 1) + 1
        counted = xp.minimum(stop, n + border) - xp.maximum(first, -border)
        tables.append(xp.stack([first, xp.minimum(stop, n), counted], axis=1))
    rows, columns = tables
    return rows, columns


def first_pixels(xp: ModuleType, geometry: Geometry, height: int, width: int) -> Array:
    """(H', W', 1): for each window the number of its first tap that is a pixel, not of the padding."""
    taps = []
    for axis, count in enumerate(geometry.output(height, width)):
        kernel, stride, padding, dilation = (both[axis] for both in geometry[:4])
        outside = xp.maximum(padding - xp.arange(count) * stride, 0)
        taps.append(xp.minimum(-(-outside // dilation), kernel - 1))  # a window may pass over all pixels
    rows, columns = taps
    return (rows[:, None] * geometry.kernel[1] + columns)[:, :, None]


def windows(x: Array, geometry: Geometry) -> list[Place]:
    """For each tap of the window, in reading order, its elements of the padded (N, H, W, C) images."""
    rows, columns = geometry.output(*x.shape[1:3])
    kh, kw = geometry.kernel
    return [(slice(None), *geometry.tap(i, j, rows, columns)) for i in range(kh) for j in range(kw)]


def pool_geometry(
    x: Array,
    kernel: Pair,
    stride: Pair | None,
    padding: Pair,
    dilation: Pair = 1,
    ceil_mode: bool = False,
) -> Geometry:
    if x.ndim != 4:
        raise ValueError(f"pooling takes images (N, C, H, W), got shape {x.shape}")
    sizes = pair(kernel, "kernel", 1)
    steps = sizes if stride is None else pair(stride, "stride", 1)
    geometry = Geometry(sizes, steps, pair(padding, "padding", 0), pair(dilation, "dilation", 1))
    if any(2 * p > extent for p, extent in zip(geometry.padding, geometry.extent, strict=True)):
        raise ValueError(
            f"padding {geometry.padding} is more than half of the window {geometry.extent}; use less padding"
        )
    if ceil_mode:
        geometry = geometry._replace(extra=rounded_up(x.shape[2:], geometry))
    check_windows_fit(x.shape[2:], geometry)
    return geometry


def rounded_up(image: tuple[int, int], geometry: Geometry) -> tuple[int, int]:
    """The border after rows and columns with which a last window, that begins before it, fits."""
    extra = []
    for n, extent, step, p in zip(image, geometry.extent, geometry.stride, geometry.padding, strict=True):
        last = -(-(n + 2 * p - extent) // step)
        if last * step >= n + p:
            last -= 1
        extra.append(max(last * step + extent - n - 2 * p, 0))
    rows, columns = extra
    return rows, columns
