"""Pools as loops on the host, maxima as one kernel each way on a GPU, and means of tiles as means of axes.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``fast/__init__.py``.
"""

from __future__ import annotations

import math
from functools import lru_cache
from types import ModuleType

import numpy as np

from ... import loops
from ...device import Array, array_module, on_gpu
from ..faster import form_of
from ..geometry import Geometry, bordered
from ..pool import Pooled, elements_of_windows, lowest, max_of_windows, mean_of_windows
from ..taps import places
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
    (ph, pw), (_, height, width, _), first = geometry.padding, x.shape, 0
    if ph or pw:
        first = first_pixels(array_module(x), geometry, height, width).astype(np.uint8)
    apart = all(s >= e for s, e in zip(geometry.stride, geometry.extent, strict=True))
    padded = bordered(x, geometry, lowest(x))
    y, to_padded = max_of_places(padded, places(x.shape, geometry), apart, first)
    return y, lambda g: to_padded(g)[:, ph : ph + height, pw : pw + width]


@form_of(mean_of_windows)
def mean_on_host(x: Array, geometry: Geometry, count_include_pad: bool) -> Pooled:
    """Loops, of which backward needs nothing of the images."""
    if not loops.can_take(x):
        return NotImplemented
    _, height, width, _ = x.shape
    return means_by_loops(x, lambda: tables_of_means(geometry, height, width, count_include_pad))


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


@form_of(elements_of_windows)
def elements_by_tables(x: Array, geometry: Geometry, count_include_pad: bool) -> Array | int:
    """One number where no window has a border that counts otherwise, else a product of two tables."""
    if not any(geometry.extra) and (count_include_pad or not any(geometry.padding)):
        return math.prod(geometry.kernel)
    _, height, width, _ = x.shape
    rows, columns = window_tables(array_module(x), geometry, height, width, count_include_pad)
    return (rows[:, 2, None, None] * columns[:, 2, None]).astype(x.dtype)


@lru_cache(256)  # to make them takes as long as pooling a small image
def tables_of_means(
    geometry: Geometry, height: int, width: int, count_include_pad: bool
) -> tuple[np.ndarray, np.ndarray]:
    """The windows of rows and of columns, for ``means_by_loops``."""
    return window_tables(np, geometry, height, width, count_include_pad)


@lru_cache(256)
def tables_and_taps(geometry: Geometry, height: int, width: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The windows of rows and of columns, and each tap's distance from the first, for ``max_by_loops``."""
    offsets = np.array([*np.ndindex(geometry.kernel)]) * geometry.dilation
    return *window_tables(np, geometry, height, width, count_include_pad=True), offsets


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
