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
from .geometry import Geometry, Pair, blocks, check_windows_fit, nchw, nhwc, pad_rows_and_columns, pair
from .pool_kernels import MOST_PLACES, max_of_places

Place = tuple[slice, ...]
CACHE = 1 << 19  # bytes of images pooled at a time, so that all four looks at them find them in cache


@op
def max_pool2d(x: Array, *, kernel: Pair, stride: Pair | None = None, padding: Pair = 0) -> OpResult:
    """The largest element of each window; NaN counts as largest. ``stride`` defaults to ``kernel``.

    The gradient goes to the first largest in reading order, or to the last NaN, as in PyTorch.
    """
    geometry, images = pool_geometry(x, kernel, stride, padding), nhwc(x)
    apart = geometry.stride == geometry.kernel and geometry.padding == (0, 0)
    if on_gpu(x) and apart and math.prod(geometry.kernel) <= MOST_PLACES:
        y, to_x = max_of_places(images, windows(images, geometry))
    else:
        y, to_x = (max_of_tiles if apart else max_of_columns_and_rows)(images, geometry)
    return nchw(y), (lambda g: nchw(to_x(nhwc(g))),)


def max_of_windows(x: Array, geometry: Geometry) -> tuple[Array, Callable[[Array], Array]]:
    """Any windows on (N, H, W, C) images: the readable form."""
    xp, (_, height, width, _) = array_module(x), x.shape
    least = -xp.inf if x.dtype.kind == "f" else xp.iinfo(x.dtype).min
    padded, (ph, pw) = pad_rows_and_columns(x, geometry.padding, least), geometry.padding
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
    (kh, kw), (sh, sw), (ph, pw) = geometry.kernel, geometry.stride, geometry.padding
    rows, columns = geometry.output(height, width)
    least = -xp.inf if x.dtype.kind == "f" else xp.iinfo(x.dtype).min
    whole = slice(None)
    along_rows: list[Place] = [(whole, whole, geometry.tap(0, j, rows, columns)[1]) for j in range(kw)]
    along_columns: list[Place] = [(whole, geometry.tap(i, 0, rows, columns)[0]) for i in range(kh)]
    runs = blocks(n, x[:1].nbytes, CACHE if xp is np else x.nbytes)
    y = xp.empty((n, rows, columns, channels), x.dtype)

    parts = []
    for images in runs:
        padded = pad_rows_and_columns(x[images], geometry.padding, least)
        wide = reduce(xp.maximum, [padded[place] for place in along_rows])
        y[images] = reduce(xp.maximum, [wide[place] for place in along_columns])
        parts.append((images, padded, wide))

    def to_x(g: Array) -> Array:
        d, shared = xp.zeros(x.shape, g.dtype), sharing(y)
        for images, padded, wide in parts:
            d_wide = xp.zeros(wide.shape, g.dtype)
            share_out(shared(g[images], y[images], wide, along_columns), along_columns, d_wide, sh)
            d_padded = xp.zeros(padded.shape, g.dtype) if ph or pw else d[images]
            share_out(shared(d_wide, wide, padded, along_rows), along_rows, d_padded, sw)
            if ph or pw:
                d[images] = d_padded[:, ph : ph + height, pw : pw + width]
        return d

    return y, to_x


def share_out(shares: Iterator[Array], places: list[Place], d: Array, stride: int) -> None:
    """Add each of ``shares`` to its place of d, which holds zeros; ``stride`` places do not overlap."""
    for i, (place, share) in enumerate(zip(places, shares, strict=True)):
        if i < stride:
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
def avg_pool2d(x: Array, *, kernel: Pair, stride: Pair | None = None, padding: Pair = 0) -> OpResult:
    """The mean of each window, padding counted as zeros. ``stride`` defaults to ``kernel``."""
    geometry, images = pool_geometry(x, kernel, stride, padding), nhwc(x)
    if are_tiles(images, geometry):
        y, to_x = mean_of_tiles(images, geometry)
    else:
        y, to_x = mean_of_windows(images, geometry)
    return nchw(y), (lambda g: nchw(to_x(nhwc(g))),)


def mean_of_windows(x: Array, geometry: Geometry) -> tuple[Array, Callable[[Array], Array]]:
    """Any windows on (N, H, W, C) images: the readable form."""
    xp, (_, height, width, _) = array_module(x), x.shape
    padded, (ph, pw) = pad_rows_and_columns(x, geometry.padding), geometry.padding
    places = windows(x, geometry)
    y = padded[places[0]].copy()
    for place in places[1:]:
        y += padded[place]
    y = xp.divide(y, len(places), out=y if y.dtype.kind == "f" else None)

    def to_x(g: Array) -> Array:
        share = g / len(places)
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


def pool_geometry(x: Array, kernel: Pair, stride: Pair | None, padding: Pair) -> Geometry:
    if x.ndim != 4:
        raise ValueError(f"pooling takes images (N, C, H, W), got shape {x.shape}")
    sizes = pair(kernel, "kernel", 1)
    steps = sizes if stride is None else pair(stride, "stride", 1)
    geometry = Geometry(sizes, steps, pair(padding, "padding", 0), (1, 1))
    if any(2 * p > k for p, k in zip(geometry.padding, sizes, strict=True)):
        raise ValueError(
            f"padding {geometry.padding} is more than half of the window {sizes}; use less padding"
        )
    check_windows_fit(x, geometry)
    return geometry
