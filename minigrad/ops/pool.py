"""Pooling of images, (N, C, H, W) to the reader and channels-last in memory."""

from __future__ import annotations

from ..device import Array, array_module
from ..op import Pulled, op
from .conv import Geometry, Pair, check_windows_fit, nchw, nhwc, pad_rows_and_columns, pair


@op
def max_pool2d(x: Array, *, kernel: Pair, stride: Pair | None = None, padding: Pair = 0) -> Pulled:
    """The largest element of each window; the gradient goes to the first largest. ``stride`` defaults to ``kernel``."""
    geometry = pool_geometry(x, kernel, stride, padding)
    xp = array_module(x)
    padded = pad_rows_and_columns(nhwc(x), geometry.padding, -xp.inf)
    places = windows(x, geometry)
    y = padded[places[0]]
    for place in places[1:]:
        y = xp.maximum(y, padded[place])
    height, width = x.shape[2:]
    ph, pw = geometry.padding

    def to_x(g: Array) -> Array:
        g = nhwc(g)
        d, waiting = xp.zeros(padded.shape, g.dtype), xp.ones(y.shape, bool)
        for place in places:
            hit = (padded[place] == y) & waiting
            waiting &= ~hit
            d[place] += g * hit
        return nchw(d[:, ph : ph + height, pw : pw + width])

    return nchw(y), (to_x,)


@op
def avg_pool2d(x: Array, *, kernel: Pair, stride: Pair | None = None, padding: Pair = 0) -> Pulled:
    """The mean of each window, padding counted as zeros. ``stride`` defaults to ``kernel``."""
    geometry = pool_geometry(x, kernel, stride, padding)
    xp = array_module(x)
    padded = pad_rows_and_columns(nhwc(x), geometry.padding)
    places, shape = windows(x, geometry), padded.shape
    y = padded[places[0]].copy()
    for place in places[1:]:
        y += padded[place]
    y /= len(places)
    height, width = x.shape[2:]
    ph, pw = geometry.padding

    def to_x(g: Array) -> Array:
        share = nhwc(g) / len(places)
        d = xp.zeros(shape, g.dtype)
        for place in places:
            d[place] += share
        return nchw(d[:, ph : ph + height, pw : pw + width])

    return nchw(y), (to_x,)


def windows(x: Array, geometry: Geometry) -> list[tuple[slice, slice, slice]]:
    """For each tap of the window, where it lies on the padded (N, H, W, C) images."""
    rows, columns = geometry.output(*x.shape[2:])
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
