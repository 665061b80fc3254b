"""Max-pooling on the host that remembers where each maximum stood; ``pool.max_of_windows`` is readable.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``pool.py``. Every s-th column of images has
few numbers in a row of memory, which NumPy takes one row at a time. So the pixels that are tap j of some
window, and those of every other tap a whole number of strides away, are copied to an array of their own:
there a tap is the array, moved, and one call of NumPy compares all windows of some images. Maxima overwrite
what no other window needs, which leaves room in the cache. Backward adds each gradient at its place, which
takes a third to a half of the time that comparing again would take.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from .geometry import Geometry, blocks

CACHE = 5 << 17  # bytes of the copies of some images: they stay in cache with what is computed of them


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

    @property
    def home(self) -> int | None:
        """The copy that maxima may overwrite: the second tap's, if it is of no other tap and has no border.

        Of a single tap it is the copy that holds them already.
        """
        if len(self.taps) == 1:
            return self.taps[0][0]
        (copy, move), inside = self.taps[1], range(self.length)
        inside = inside[self.copies[copy][0]]
        alone = move == 0 and [other for other, _ in self.taps].count(copy) == 1
        return copy if alone and inside.start == 0 and len(inside) >= len(self.first) else None


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
    (n, _, width, channels), (rows, columns) = x.shape, axes
    shape = n, len(rows.first), len(columns.first), channels
    kind = np.min_scalar_type(rows.offsets[-1] * width + columns.offsets[-1])
    y, places = np.empty(shape, x.dtype), np.empty(shape, kind)
    of_image = math.prod(len(axis.copies) * axis.length for axis in axes) * channels * x.itemsize
    n_runs = max(-(-n * of_image // CACHE), 1)
    runs = blocks(n, 1, -(-n // n_runs))  # all of about one length
    if x.size and y.size:
        find_largest(x, axes, border, runs, y, places)
    return y, (lambda g: add_at_places(g, places, axes, runs, x.shape))


def find_largest(
    x: np.ndarray,
    axes: tuple[WindowAxis, WindowAxis],
    border: float,
    runs: list[slice],
    y: np.ndarray,
    places: np.ndarray,
) -> None:
    """Write the maxima to y, and to ``places`` how many pixels behind the window's first each stood."""
    (rows, columns), (_, _, width, channels), kind = axes, x.shape, places.dtype
    room = runs[0].stop, rows.length, columns.length, channels  # the first run is the longest
    size, line, across = math.prod(room), math.prod(room[2:]), columns.reach * channels
    copies = {j: np.full((len(rows.copies), *room), border, x.dtype) for j in columns.copies}
    copying = [
        (pixels(copies[j])[i, :, inner_rows, inner_columns], own_rows, own_columns)
        for j, (inner_columns, own_columns) in columns.copies.items()
        for i, (inner_rows, own_rows) in enumerate(rows.copies.values())
    ]
    flat, whole = {j: copy.reshape(-1) for j, copy in copies.items()}, len(rows.copies) * size
    starts = {i: number * size for number, i in enumerate(rows.copies)}
    wide = np.empty(whole, x.dtype) if columns.home is None else flat[columns.home]
    larger, numbers, candidate = np.empty(whole, bool), np.zeros(whole, kind), np.empty(whole, kind)
    tall, tall_numbers = np.empty(size, x.dtype), np.zeros(size, kind)
    if rows.home is not None:
        tall = wide[starts[rows.home] :][:size]
        if len(columns.taps) > 1:  # or the numbers must stay 0
            tall_numbers = numbers[starts[rows.home] :][:size]
    stop, end = whole - across, size - rows.reach * line - across
    column_taps = [flat[j][k * channels :][:stop] for j, k in columns.taps]
    row_taps, row_numbers = ([a[starts[i] + k * line :][:end] for i, k in rows.taps] for a in (wide, numbers))
    row_offsets = [width * offset for offset in rows.offsets]
    of_columns = [a[:stop] for a in (wide, numbers, larger, candidate)]
    of_rows = [a[:end] for a in (tall, tall_numbers, larger, candidate)]
    for images in runs:
        part = pixels(x[images])
        for copy, own_rows, own_columns in copying:
            copy[: len(part)] = part[:, own_rows][:, :, own_columns]
        largest(column_taps, None, columns.offsets, *of_columns)
        largest(row_taps, row_numbers, row_offsets, *of_rows)
        for a, out in ((tall, y), (tall_numbers, places)):  # without the windows that end in the next row
            out[images] = a.reshape(room)[: len(part), : y.shape[1], : y.shape[2]]


def largest(
    taps: Sequence[np.ndarray],
    numbers: Sequence[np.ndarray] | None,
    offsets: Sequence[int],
    value: np.ndarray,
    number: np.ndarray,
    larger: np.ndarray,
    candidate: np.ndarray,
) -> None:
    """Write the largest of the taps to ``value``, and to ``number`` that of the first that is so large.

    A tap's number is its offset, added to its ``numbers`` where there are some; numbers increase. ``value``
    and ``number`` may be the second tap and its numbers. The last two arrays are for intermediate results.
    """
    top, kind = taps[0], number.dtype.type
    for i in range(1, len(taps)):
        first = numbers is None and i == 1
        same = first and offsets[1] == number.itemsize == 1  # the comparison's bytes are the numbers
        np.greater(taps[i], top, out=number.view(bool) if same else larger)
        if first and not same:
            np.multiply(larger.view(np.uint8), kind(offsets[1]), out=number)
        elif not first:
            own = kind(offsets[i]) if numbers is None else numbers[i] + kind(offsets[i])
            np.multiply(larger.view(np.uint8), own, out=candidate)
            np.maximum(number if numbers is None or i > 1 else numbers[0], candidate, out=number)
        top = np.maximum(top, taps[i], out=value)


def add_at_places(
    g: np.ndarray,
    places: np.ndarray,
    axes: tuple[WindowAxis, WindowAxis],
    runs: list[slice],
    shape: tuple[int, ...],
) -> np.ndarray:
    """Images of ``shape``, zero but at the places of the maxima, where the gradients g are added."""
    (_, height, width, channels), most = shape, runs[0].stop if runs else 0
    d, image = np.empty(shape, g.dtype), height * width * channels
    row, column = (np.array(axis.first) * channels for axis in axes)
    short = np.int32 if most * image < 1 << 31 else np.int64  # half of the time
    first = np.add.outer(np.arange(most) * image, np.add.outer(row * width, column)).astype(short)
    start = first[..., None] + np.arange(channels, dtype=short)
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


def pixels(x: np.ndarray) -> np.ndarray:
    """Images (..., H, W, C) as (..., H, W) elements where C > 0; NumPy copies these in half the time."""
    return x.view(np.dtype((np.void, x.shape[-1] * x.itemsize)))[..., 0] if x.shape[-1] else x
