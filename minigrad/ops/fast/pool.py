"""Pools as loops on the host, maxima as one kernel each way on a GPU, and means of tiles as means of axes.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``fast/__init__.py``.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from ... import loops
from ...device import Array, array_module, on_gpu
from ...faster import form_of
from ..geometry import Geometry, bordered, taps
from ..pool import Pooled, lowest, max_of_windows, mean_of_windows
from .pool_kernels import MOST_PLACES, max_of_places
from .window_loops import max_by_loops, means_by_loops


@form_of(max_of_windows)
def max_on_host(x: Array, geometry: Geometry) -> Pooled:
    """Loops, of which backward needs a byte per window."""
    if not loops.can_take(x):
        return NotImplemented
    _, height, width, _ = x.shape
    return max_by_loops(x, lambda: tables_and_taps(geometry, height, width))


@form_of(max_of_windows)
def max_on_gpu(x: Array, geometry: Geometry) -> Pooled:
    """One kernel each way where windows are small, and more where they overlap."""
    if not on_gpu(x) or math.prod(geometry.kernel) > MOST_PLACES:
        return NotImplemented
    xp, (ph, pw), (_, height, width, _), first = array_module(x), geometry.padding, x.shape, 0
    if ph or pw:
        pixels = taps(xp.ones((1, height, width, 1), bool), geometry, border=False)
        first = xp.stack(pixels).argmax(axis=0).astype(np.uint8)
    apart = all(s >= e for s, e in zip(geometry.stride, geometry.extent, strict=True))
    padded = bordered(x, geometry, lowest(x))
    y, to_padded = max_of_places(padded, geometry.places(height, width), apart, first)
    return y, lambda g: to_padded(g)[:, ph : ph + height, pw : pw + width]


@form_of(mean_of_windows)
def mean_on_host(x: Array, geometry: Geometry, count_include_pad: bool) -> Pooled:
    """Loops, of which backward needs nothing of the images."""
    if not loops.can_take(x):
        return NotImplemented
    _, height, width, _ = x.shape
    return means_by_loops(x, lambda: window_tables(geometry, height, width, count_include_pad))


@form_of(mean_of_windows)
def mean_of_tiles(x: Array, geometry: Geometry, count_include_pad: bool) -> Pooled:
    """Windows side by side that cover the images: each element gets the gradient of one window."""
    xp, shape, (kh, kw) = array_module(x), x.shape, geometry.kernel
    n, height, width, channels = shape
    apart = geometry.stride == geometry.kernel and geometry.padding == (0, 0)
    if not apart or height % kh or width % kw:
        return NotImplemented
    tiles = n, height // kh, kh, width // kw, kw, channels

    def to_x(g: Array) -> Array:
        share = (g / (kh * kw))[:, :, None, :, None]
        return xp.ascontiguousarray(xp.broadcast_to(share, tiles)).reshape(shape)

    return x.reshape(tiles).mean(axis=(2, 4), dtype=x.dtype), to_x


@lru_cache(256)
def tables_and_taps(geometry: Geometry, height: int, width: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The windows of rows and of columns, and each tap's distance from the first, for ``max_by_loops``."""
    offsets = np.array([*np.ndindex(geometry.kernel)]) * geometry.dilation
    return *window_tables(geometry, height, width, count_include_pad=True), offsets


@lru_cache(256)  # to make them takes as long as pooling a small image
def window_tables(
    geometry: Geometry, height: int, width: int, count_include_pad: bool
) -> tuple[np.ndarray, np.ndarray]:
    """For each window, along rows and columns: first pixel, end on the image, pixels that count in a mean."""
    tables = []
    for axis, (n, count) in enumerate(zip((height, width), geometry.output(height, width), strict=True)):
        kernel, stride, padding, dilation = (both[axis] for both in geometry[:4])
        first, border = np.arange(count) * stride - padding, padding if count_include_pad else 0
        stop = first + dilation * (kernel - 1) + 1
        counted = np.minimum(stop, n + border) - np.maximum(first, -border)
        tables.append(np.stack([first, np.minimum(stop, n), counted], axis=1))
    rows, columns = tables
    return rows, columns
