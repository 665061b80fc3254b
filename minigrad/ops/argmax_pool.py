"""Max-pooling on the host that remembers where each maximum stood; ``pool.max_of_windows`` is readable.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``pool.py``. Every s-th column of images has
few numbers in a row of memory, which NumPy takes one row at a time. So the pixels that are tap j of some
window, and those of every other tap a whole number of strides away, are copied to an array of their own:
there a tap is the array, moved, and one call of NumPy compares all windows of some images. Backward adds
each gradient at its place, which takes a third to a half of the time that comparing again would take.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from .geometry import Geometry, blocks

CACHE = 1 << 20  # bytes of up to four copies of images: they stay in cache with what is computed of them


class WindowAxis(NamedTuple):
    """Where windows stand along an axis: the first pixel of each, and ``offsets`` of all taps from there.

    Tap j is ``taps[j]`` = (copy, move): in that copy of pixels, moved so far. ``copies`` are (where in the
    copy, which pixels), of ``length``; elsewhere a copy holds border.
    """

    first: tuple[int, ...]
    offsets: list[int]
    taps: list[tuple[int, int]]
    copies: dict[int, tuple[slice, slice | list[int]]]
    length: int

    @property
    def reach(self) -> int:
        return self.length - len(self.first)


@lru_cache(256)  # half of the time that a single small image takes
def window_axes(geometry: Geometry, height: int, width: int) -> tuple[WindowAxis, WindowAxis]:
    """Windows at equal distances on images, for rows and columns."""
    counts = geometry.output(height, width)
    rows, columns = (even_axis(*axis) for axis in zip((height, width), counts, *geometry[:4], strict=True))
    return rows, columns


def even_axis(n: int, count: int, kernel: int, stride: int, padding: int, dilation: int) -> WindowAxis:
    """``count`` windows on ``n`` pixels; pixels of one copy are a stride apart."""
    offsets = [dilation * j for j in range(kernel)]
    taps = [(offset % stride, offset // stride) for offset in offsets]
    length, copies = count + offsets[-1] // stride, {}
    for start in {copy for copy, _ in taps}:
        before = max(-(-(padding - start) // stride), 0)  # elements of the copy in the padding
        pixels = range(before * stride + start - padding, n, stride)[: max(length - before, 0)]
        copies[start] = slice(before, before + len(pixels)), slice(pixels.start, pixels.stop, stride)
    first = tuple(stride * i - padding for i in range(count))
    return WindowAxis(first, offsets, taps, copies, length)


def axis_of_spans(spans: Sequence[slice]) -> WindowAxis:
    """Windows of different sizes: smaller ones have their last pixel several times, which is never larger."""
    most = max(span.stop - span.start for span in spans)
    copies: dict = {j: (slice(None), [min(s.start + j, s.stop - 1) for s in spans]) for j in range(most)}
    first = tuple(span.start for span in spans)
    return WindowAxis(first, [*range(most)], [(j, 0) for j in range(most)], copies, len(spans))


def argmax_pool(
    x: np.ndarray, axes: tuple[WindowAxis, WindowAxis], border: float
) -> tuple[np.ndarray, Callable[[np.ndarray], np.ndarray]]:
    """The largest element of each window on (N, H, W, C) images without NaN, and the pullback.

    First the maximum of a window's rows, then that of these maxima, with their places: so the first in
    reading order. Of a window of nothing but ``border`` the place may be outside of the image.
    """
    (n, height, width, channels), (rows, columns) = x.shape, axes
    shape = n, len(rows.first), len(columns.first), channels
    kind = np.min_scalar_type(rows.offsets[-1] * width + columns.offsets[-1]).type
    y, places = np.empty(shape, x.dtype), np.empty(shape, kind)
    count = len(rows.copies) * len(columns.copies)
    each = count * rows.length * columns.length * channels * x.itemsize
    runs = blocks(n, each, CACHE * max(count // 4, 1))  # many copies are small, and take many calls
    room = runs[0].stop if runs else 0, rows.length, columns.length, channels  # the first run is the longest
    size, line, down, across = math.prod(room), math.prod(room[2:]), rows.reach, columns.reach
    whole = len(rows.copies) * size
    starts = {copy: number * size for number, copy in enumerate(rows.copies)}
    copies = {j: np.full((len(rows.copies), *room), border, x.dtype) for j in columns.copies}
    copied_pixels = {j: pixels(copy) for j, copy in copies.items()}
    wide = np.empty(whole, x.dtype), np.empty(whole, kind)
    tall = np.empty(size, x.dtype), np.empty(size, kind)
    work = np.empty(whole, bool), np.empty(whole, kind)
    stop = max(whole - across * channels, 0)
    column_taps = [copies[j].reshape(-1)[k * channels :][:stop] for j, k in columns.taps]
    column_numbers = [np.zeros(stop, kind), *map(kind, columns.offsets[1:])]
    for images in runs:
        part = pixels(x[images])
        for j, (inner_columns, own_columns) in columns.copies.items():
            for copy, (inner_rows, own_rows) in zip(copied_pixels[j], rows.copies.values(), strict=True):
                copy[: len(part), inner_rows, inner_columns] = part[:, own_rows][:, :, own_columns]
        largest(column_taps, column_numbers, *(a[:stop] for a in (*wide, *work)))
        end = (len(part) * rows.length - down) * line - across * channels
        taps, numbers = ([a[starts[i] + k * line :][:end] for i, k in rows.taps] for a in wide)
        numbers[1:] = [a + kind(i * width) for a, i in zip(numbers[1:], rows.offsets[1:], strict=True)]
        largest(taps, numbers, *(a[:end] for a in (*tall, *work)))
        for a, out in zip(tall, (y, places), strict=True):  # without the windows that end in the next row
            out[images] = a.reshape(room)[: len(part), : shape[1], : shape[2]]

    def to_x(g: np.ndarray) -> np.ndarray:
        d = np.empty((n, height, width, channels), g.dtype)
        row, column = (np.array(axis.first, np.int64) for axis in axes)
        first = np.add.outer(np.arange(room[0]) * (height * width), np.add.outer(row * width, column))
        short = np.int32 if d[:1].size * room[0] < 1 << 31 else np.int64  # half of the time
        start = (first[..., None] * channels + np.arange(channels)).astype(short)
        index, place = np.empty(start.shape, np.intp), np.empty(start.shape, short)
        for images in runs:
            count = images.stop - images.start
            part = place[:count]
            part[...] = places[images]
            part *= channels
            part += start[:count]
            index[:count] = part
            d[images] = 0
            np.add.at(d[images].reshape(-1), index[:count].reshape(-1), g[images].reshape(-1))
        return d

    return y, to_x


def pixels(x: np.ndarray) -> np.ndarray:
    """Images (..., H, W, C) as (..., H, W) elements where C > 0; NumPy copies these in half the time."""
    return x.view(np.dtype((np.void, x.shape[-1] * x.itemsize)))[..., 0] if x.shape[-1] else x


def largest(
    taps: Sequence[np.ndarray],
    numbers: Sequence[Any],
    value: np.ndarray,
    number: np.ndarray,
    larger: np.ndarray,
    candidate: np.ndarray,
) -> None:
    """Write the largest of the taps to ``value``, and to ``number`` that of the first that is so large.

    The numbers of taps increase. The last two arrays are for intermediate results.
    """
    top, first = taps[0], numbers[0]
    if len(taps) == 1:
        value[...], number[...] = top, first
    for tap, other in zip(taps[1:], numbers[1:], strict=True):
        np.greater(tap, top, out=larger)
        np.multiply(larger.view(np.uint8), other, out=candidate)
        first, top = np.maximum(first, candidate, out=number), np.maximum(top, tap, out=value)
