"""Pooling of images, (N, C, H, W) to the reader and channels-last in memory.

Lecture section: back-propagation. Lesson: 02_backpropagation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import reduce

import numpy as np

from ..device import Array, array_module, on_gpu
from ..op import OpResult, op
from .geometry import (
    Geometry,
    Pair,
    blocks,
    check_windows_fit,
    extended,
    nchw,
    nhwc,
    pad_rows_and_columns,
    pair,
)
from .pool_kernels import MOST_PLACES, max_of_places

Place = tuple[slice, ...]
CACHE = 1 << 19  # bytes of images pooled at a time, so that all four looks at them find them in cache


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
    geometry = pool_geometry(x, kernel, stride, padding, dilation, ceil_mode)
    images, geometry = extended(nhwc(x), geometry.extra, lowest(x)), geometry._replace(extra=(0, 0))
    height, width = x.shape[2:]
    apart = geometry.stride == geometry.extent and geometry.kernel == geometry.extent
    apart = apart and geometry.padding == (0, 0)
    if on_gpu(x) and apart and math.prod(geometry.kernel) <= MOST_PLACES:
        y, to_x = max_of_places(images, windows(images, geometry))
    else:
        y, to_x = (max_of_tiles if apart else max_of_columns_and_rows)(images, geometry)
    return nchw(y), (lambda g: nchw(to_x(nhwc(g))[:, :height, :width]),)


def lowest(x: Array) -> float:
    """What is no larger than any element of ``x``."""
    return -math.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min


def max_of_windows(x: Array, geometry: Geometry) -> tuple[Array, Callable[[Array], Array]]:
    """Any windows on (N, H, W, C) images: the readable form."""
    xp, (_, height, width, _) = array_module(x), x.shape
    padded, (ph, pw) = pad_rows_and_columns(x, geometry.padding, lowest(x)), geometry.padding
    places = windows(x, geometry)
    y = padded[places[0]]
    for place in places[1:]:
        y = xp.maximum(y, padded[place])

    def to_x(g: Array) -> Array:
        d = xp.zeros(padded.shape, g.dtype)
        for place, share in zip(places, sharing(y)(g, y, padded, places), strict=True):
            d[place] += share
        return d[:, ph : ph + height, pw : pw + width]

    return y, to_x


def max_of_columns_and_rows(x: Array, geometry: Geometry) -> tuple[Array, Callable[[Array], Array]]:
    """Any windows, a few images at a time: the maximum of each window's rows, then that of these maxima.

    The first largest element of a window is the first one of the first row that has it, so the gradient goes
    to a row first, and there to an element: kh + kw places are compared, not kh kw.
    """
    xp, (n, height, width, channels) = array_module(x), x.shape
    (kh, kw), (ph, pw) = geometry.kernel, geometry.padding
    apart = [s // math.gcd(s, d) for s, d in zip(geometry.stride, geometry.dilation, strict=True)]
    rows, columns = geometry.output(height, width)
    whole = slice(None)
    along_rows: list[Place] = [(whole, whole, geometry.tap(0, j, rows, columns)[1]) for j in range(kw)]
    along_columns: list[Place] = [(whole, geometry.tap(i, 0, rows, columns)[0]) for i in range(kh)]
    runs = blocks(n, x[:1].nbytes, CACHE if xp is np else x.nbytes)
    y = xp.empty((n, rows, columns, channels), x.dtype)

    parts = []
    for images in runs:
        padded = pad_rows_and_columns(x[images], geometry.padding, lowest(x))
        wide = reduce(xp.maximum, [padded[place] for place in along_rows])
        y[images] = reduce(xp.maximum, [wide[place] for place in along_columns])
        parts.append((images, padded, wide))

    def to_x(g: Array) -> Array:
        d, shared = xp.zeros(x.shape, g.dtype), sharing(y)
        for images, padded, wide in parts:
            d_wide = xp.zeros(wide.shape, g.dtype)
            share_out(shared(g[images], y[images], wide, along_columns), along_columns, d_wide, apart[0])
            d_padded = xp.zeros(padded.shape, g.dtype) if ph or pw else d[images]
            share_out(shared(d_wide, wide, padded, along_rows), along_rows, d_padded, apart[1])
            if ph or pw:
                d[images] = d_padded[:, ph : ph + height, pw : pw + width]
        return d

    return y, to_x


def share_out(shares: Iterator[Array], places: list[Place], d: Array, apart: int) -> None:
    """Add each of ``shares`` to its place of d, which holds zeros; the first ``apart`` do not overlap."""
    for i, (place, share) in enumerate(zip(places, shares, strict=True)):
        if i < apart:
            d[place] = share
        else:
            d[place] += share


def max_of_tiles(x: Array, geometry: Geometry) -> tuple[Array, Callable[[Array], Array]]:
    """Windows side by side, a few images at a time: rows are compared first, then columns."""
    xp, (kh, kw) = array_module(x), geometry.kernel
    rows, columns = geometry.output(*x.shape[1:3])
    runs = blocks(len(x), x[:1].nbytes, CACHE if xp is np else x.nbytes)
    places = windows(x, geometry)
    y = xp.empty((len(x), rows, columns, x.shape[3]), x.dtype)
    for images in runs:
        part = x[images, : rows * kh, : columns * kw]
        tall = reduce(xp.maximum, (part[:, i::kh] for i in range(kh)))
        first, *others = (tall[:, :, j::kw] for j in range(kw))
        xp.maximum(first, others[0] if others else first, out=y[images])
        for other in others[1:]:
            xp.maximum(y[images], other, out=y[images])

    def to_x(g: Array) -> Array:
        covered = (rows * kh, columns * kw) == x.shape[1:3]
        d, shared = (xp.empty if covered else xp.zeros)(x.shape, g.dtype), sharing(y)
        for images in runs:
            shares = shared(g[images], y[images], x[images], places)
            for place, share in zip(places, shares, strict=True):
                d[images][place] = share
        return d

    return y, to_x


Sharing = Callable[[Array, Array, Array, list[Place]], Iterator[Array]]


def sharing(y: Array) -> Sharing:
    """A function that gives each place of the windows its part of the gradient g; ``y`` are their maxima.

    The place of the largest element gets all of g, the others nothing.
    """
    plain = not on_gpu(y) and y.dtype.itemsize <= 8 and not np.isnan(y).any()  # the host waits for no GPU
    return shares_of_first if plain else shares_of_largest


def shares_of_largest(g: Array, _: Array, x: Array, places: list[Place]) -> Iterator[Array]:
    """The readable form, which also handles NaN."""
    xp = array_module(x)
    largest, taker = x[places[0]], xp.zeros(g.shape, int)
    for i, place in enumerate(places):
        larger = (x[place] > largest) | xp.isnan(x[place])
        largest, taker = xp.where(larger, x[place], largest), xp.where(larger, i, taker)
    for i in range(len(places)):
        yield xp.where(taker == i, g, 0)


def shares_of_first(g: Array, y: Array, x: Array, places: list[Place]) -> Iterator[Array]:
    """The first place that equals y gets all of g; the last place gets the rest.

    The gradient's bits are multiplied as integers, so infinite values do not spread to other places.
    """
    bits, rest = g.view(f"i{g.dtype.itemsize}"), None
    for place in places[:-1]:
        share = bits * (x[place] == y)
        bits = rest = np.subtract(bits, share, out=rest)
        yield share.view(g.dtype)
    yield bits.view(g.dtype)


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
    geometry = pool_geometry(x, kernel, stride, padding, 1, ceil_mode)
    images, even = extended(nhwc(x), geometry.extra), geometry._replace(extra=(0, 0))
    height, width = x.shape[2:]
    if any(geometry.extra) or (any(geometry.padding) and not count_include_pad):
        y, to_x = mean_of_windows(images, even, elements_of_windows(x, geometry, count_include_pad))
    elif are_tiles(images, even):
        y, to_x = mean_of_tiles(images, even)
    else:
        y, to_x = mean_of_windows(images, even)
    return nchw(y), (lambda g: nchw(to_x(nhwc(g))[:, :height, :width]),)


def elements_of_windows(x: Array, geometry: Geometry, count_include_pad: bool) -> Array:
    """How many elements of images x (N, C, H, W), and of their padding, are in each window: (H', W', 1)."""
    xp, counts = array_module(x), []
    windows = geometry.output(*x.shape[2:])
    axes = zip(windows, x.shape[2:], geometry.kernel, geometry.stride, geometry.padding, strict=True)
    for n_windows, size, kernel, stride, padding in axes:
        border = padding if count_include_pad else 0
        start = xp.arange(n_windows) * stride - padding
        counts.append(xp.minimum(start + kernel, size + border) - xp.maximum(start, -border))
    return (counts[0][:, None, None] * counts[1][:, None]).astype(x.dtype if x.dtype.kind == "f" else float)


def mean_of_windows(
    x: Array, geometry: Geometry, count: Array | None = None
) -> tuple[Array, Callable[[Array], Array]]:
    """Any windows on (N, H, W, C) images: the readable form. ``count`` elements of each one count."""
    xp, (_, height, width, _) = array_module(x), x.shape
    padded, (ph, pw) = pad_rows_and_columns(x, geometry.padding), geometry.padding
    places = windows(x, geometry)
    y = padded[places[0]].copy()
    for place in places[1:]:
        y += padded[place]
    divisor = len(places) if count is None else count
    y = xp.divide(y, divisor, out=y if y.dtype.kind == "f" else None)

    def to_x(g: Array) -> Array:
        share = g / divisor
        d = xp.zeros(padded.shape, g.dtype)
        for place in places:
            d[place] += share
        return d[:, ph : ph + height, pw : pw + width]

    return y, to_x


def are_tiles(x: Array, geometry: Geometry) -> bool:
    """Whether windows stand side by side on (N, H, W, C) images, and cover all of them."""
    apart = geometry.stride == geometry.kernel and geometry.padding == (0, 0)
    return apart and not (x.shape[1] % geometry.kernel[0] or x.shape[2] % geometry.kernel[1])


def mean_of_tiles(x: Array, geometry: Geometry) -> tuple[Array, Callable[[Array], Array]]:
    """Windows that are tiles: each element gets the gradient of one window, and nothing is added."""
    xp, (n, height, width, channels), (kh, kw) = array_module(x), x.shape, geometry.kernel
    tiles = n, height // kh, kh, width // kw, kw, channels
    y = x.reshape(tiles).mean(axis=(2, 4), dtype=x.dtype if x.dtype.kind == "f" else None)

    def to_x(g: Array) -> Array:
        share = (g / (kh * kw))[:, :, None, :, None]
        return xp.ascontiguousarray(xp.broadcast_to(share, tiles)).reshape(x.shape)

    return y, to_x


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
    check_windows_fit(x, geometry)
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
