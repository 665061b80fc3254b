"""Winograd's algorithm down the columns of images only, which pays from four channels on (Winograd 1980).

As in ``kernel_rows`` a window sees one piece of memory in each row of the image, of kw C numbers, and the
windows that begin in one column, or stand side by side, are the rows of a matrix that need not be made. On
six rows of the image stand four rows of windows of 3 rows, three of 4, or two of 5. Their outputs are

    outputs = A.T [ (G kernel) * (B.T rows) ]

where * is such a product of windows with a row of the kernel: 6 products instead of 12, 12 or 10. The
matrices are those of ``winograd``; the transforms are matrix products, too. Errors in float32 are about 3e-6
of the largest element.
Lecture section: back-propagation. Lesson: 02_backpropagation, by ``fast/conv.py``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import numpy as np

from ...device import Array, on_gpu
from ..conv import Convolved
from ..geometry import Geometry, with_border
from .groups import rotated_kernel, split_groups
from .im2col import SMALL, im2col
from .images import Place, cut_off, pixels, strided_view
from .kernel_rows import FEW_FILTERS, LEAST, equal_blocks
from .winograd import BT, IN

MANY = 128  # rows of a matrix; with 32 of them the kernel's gradient takes a fifth longer


class Windows(NamedTuple):
    """What the products of some tiles see, and where their outputs stand."""

    array: Array  # (6, groups, starts, parts, m, kw C)
    step: int  # pixels from one window to the next: parts m of them begin at each of its first ``starts``
    pitch: int  # pixels from one tile to the next
    pixels: int  # of all, with those behind the last tile


def can_take(w: tuple[int, ...], geometry: Geometry) -> bool:
    """Whether the kernel has three to five rows, at stride and dilation 1."""
    return 3 <= geometry.kernel[0] <= 5 and geometry.stride == geometry.dilation == (1, 1)


def pays(x: tuple[int, ...], w: tuple[int, ...], geometry: Geometry) -> bool:
    """Whether it takes less time than sums of products: for many windows, and small enough products.

    It needs 4 channels and filters (measured for 1 to 256 of them, and images of 7 x 7 to 32 x 32).
    """
    kw, (filters, channels), (images, height, width, _) = geometry.kernel[1], w[:2], x
    filters //= geometry.groups
    enough = images * math.prod(geometry.output(height, width)) * min(filters, channels) * geometry.groups
    return (
        kw >= 3 and min(filters, channels) >= 4 and enough >= LEAST and 16 * kw * channels * filters <= SMALL
    )


def winograd_rows(x: Array, w: Array, geometry: Geometry, bias: Array | None = None) -> Convolved:
    """x (N, H, W, C) and w (F, C / groups, kh, kw) that it ``can_take``; the value is (N, H', W', F).

    On the host the value may have a bias (F,). On a GPU it is im2col.
    """
    if on_gpu(x):
        return im2col(x, w, geometry)

    def to_image(g: Array) -> Array:
        return correlate(g, rotated_kernel(w, geometry.groups), geometry.backward())

    return correlate(x, w, geometry, bias), (to_image, lambda g: kernel_gradient(x, g, w.shape, geometry))


def correlate(x: Array, w: Array, geometry: Geometry, bias: Array | None = None) -> Array:
    """The value of the convolution, (N, H', W', F)."""
    return np.ascontiguousarray(whole_tiles(x, w, geometry, bias)[:, : geometry.output(*x.shape[1:3])[0]])


def whole_tiles(x: Array, w: Array, geometry: Geometry, bias: Array | None = None) -> Array:
    """The value, with the rows below its last one that complete the tiles.

    The bias stands in a seventh product, which is there already.
    """
    (rows, columns), (kh, kw), groups = geometry.output(*x.shape[1:3]), geometry.kernel, geometry.groups
    filters, channels = w.shape[:2]
    kernel = w.reshape(groups, filters // groups, channels, kh, kw).transpose(3, 0, 4, 2, 1)
    kernel = of_kernel(kh).astype(w.dtype) @ kernel.reshape(kh, w.size // kh)
    kernel = kernel.reshape(IN, groups, 1, 1, kw * channels, filters // groups)
    out = IN + 1 - kh
    y = np.empty((len(x), -(-rows // out), out, columns * filters), np.result_type(x, w))
    sums = of_outputs(kh).T.astype(y.dtype)
    if bias is not None:
        sums = np.concatenate([sums, np.ones_like(sums[:, :1])], axis=1)
    products = np.empty((sums.shape[1], 0), y.dtype)
    for place, windows in in_tiles(x, geometry, filters):
        if products.shape[1] != windows.pixels * filters:
            products = np.empty((sums.shape[1], windows.pixels * filters), y.dtype)
            if bias is not None:
                products[IN] = np.tile(bias, windows.pixels)
        np.matmul(windows.array, kernel, out=as_windows(products[:IN], windows))
        np.matmul(sums, as_lines(products, y[place].shape, windows.pitch * filters), out=y[place])
    return y.reshape(len(x), y.shape[1] * out, columns, filters)


def kernel_gradient(x: Array, g: Array, shape: tuple[int, ...], geometry: Geometry) -> Array:
    """The pullback to the kernel, (F, C / groups, kh, kw); g may end with zeros that complete the tiles."""
    groups, (kh, kw), (filters, channels) = geometry.groups, geometry.kernel, shape[:2]
    (n, rows, columns, _), out, below = g.shape, IN + 1 - kh, rows_below(g.shape[1], kh)
    gs = with_border(g, (0, 0), (below, 0)).reshape(n, (rows + below) // out, out, columns * filters)
    turned = filters < FEW_FILTERS * groups
    sizes = (filters // groups, kw * channels) if turned else (kw * channels, filters // groups)
    d, gradients = np.zeros((IN, groups, *sizes), g.dtype), np.zeros((IN, 0), g.dtype)
    for place, windows in in_tiles(x, geometry, filters):
        part = gs[place]
        if gradients.shape[1] != windows.pixels * filters:  # what stands behind the last tile meets zeros
            gradients = np.zeros((IN, windows.pixels * filters), g.dtype)
        lines = as_lines(gradients, part.shape, windows.pitch * filters)
        np.matmul(of_outputs(kh).astype(g.dtype), part, out=lines)
        a, b = windows.array, as_windows(gradients, windows)
        if turned:
            a, b = b, a
        d += (a.swapaxes(-1, -2) @ b).sum(axis=(2, 3))
    if turned:
        d = d.swapaxes(-1, -2)
    d = of_kernel(kh).T.astype(g.dtype) @ d.reshape(IN, d[0].size)
    return d.reshape(kh, groups, kw, channels, filters // groups).transpose(1, 4, 3, 0, 2).reshape(shape)


def rows_below(rows: int, kernel_rows: int) -> int:
    """How many rows complete the last tiles below so many rows of outputs."""
    return -rows % (IN + 1 - kernel_rows)


def in_tiles(x: Array, geometry: Geometry, filters: int) -> Iterator[tuple[Place, Windows]]:
    """Some images and some of their tiles, transformed, and the windows, a view of them.

    A tile is six rows of an image, which become six lines of pixels. With many tiles, all windows that begin
    in one column make a matrix. With few tiles, that matrix would have too few rows: all lines are taken as
    one, and neighboring windows make a matrix. Windows that begin after the last column of the outputs then
    count for nothing.
    """
    (rows, columns), (kh, kw) = geometry.output(*x.shape[1:3]), geometry.kernel
    x, (ph, pw) = cut_off(x, geometry.padding)
    x = split_groups(x, geometry.groups)
    groups, n, height, width, channels = x.shape
    out, pitch = IN + 1 - kh, max(width + pw, columns)  # the padding right of a line is that left of the next
    down = -(-rows // out)
    bytes_each = IN * pitch * (groups * channels + filters) * x.itemsize
    runs = equal_blocks(n, down * bytes_each)
    bands = equal_blocks(down, (runs[0].stop if runs else 0) * bytes_each)
    for images in runs:
        for band in bands:
            n, count = images.stop - images.start, band.stop - band.start
            top, size = band.start * out - ph, count * out + kh - 1
            first = min(max(top, 0), height)
            last = max(min(top + size, height), first)
            padded = np.zeros((groups, n, size, pitch, channels), x.dtype)
            part, inside = x[:, images, first:last], padded[:, :, first - top : last - top, pw : pw + width]
            if groups > 1:  # rows of few numbers
                part, inside = pixels(part), pixels(inside)
            inside[...] = part
            line, number = pitch * channels, x.itemsize
            group, image, row = padded.strides[:3]
            tiles = strided_view(
                padded, 0, (groups, n, count, IN, line), (group, image, out * row, row, number)
            )
            step, starts, most = (pitch, columns, SMALL) if n * count >= MANY else (kw, kw, MANY)
            each = -(-n * count * pitch // step)
            parts = max(-(-each // most), -(-each * kw * channels * filters // (groups * SMALL)), 1)
            m = -(-each // parts)
            length = parts * m * step
            lines = np.empty((IN, groups, (length + kw - 1) * channels), x.dtype)
            whole = lines[..., : n * count * line].reshape(IN, groups, n, count, line)
            np.matmul(BT.astype(x.dtype), tiles, out=whole.transpose(1, 2, 3, 0, 4))
            lines[..., n * count * line :] = 0
            pixel, shape = channels * number, (IN, groups, starts, parts, m, kw * channels)
            strides = *lines.strides[:2], pixel, m * step * pixel, step * pixel, number
            yield (images, band), Windows(strided_view(lines, 0, shape, strides), step, pitch, length)


def as_windows(outputs: Array, windows: Windows) -> Array:
    """Outputs (6, pixels F) in the order of the windows, (6, groups, starts, parts, m, F / groups)."""
    _, groups, starts, parts, m, _ = windows.array.shape
    filters = outputs.shape[1] // (windows.pixels * groups)
    outputs = outputs.reshape(IN, parts, m, windows.step, groups, filters)
    return outputs[:, :, :, :starts].transpose(0, 4, 3, 1, 2, 5)


def as_lines(outputs: Array, shape: tuple[int, ...], line: int) -> Array:
    """The outputs that belong to real windows, (n, tiles, 6, W' F); ``shape`` is (n, tiles, rows, W' F)."""
    n, tiles, _, columns = shape
    lines = outputs[:, : n * tiles * line].reshape(len(outputs), n, tiles, line)
    return lines[..., :columns].transpose(1, 2, 0, 3)


@cache  # 7 us, of which a step of a small layer would have six
def of_outputs(kernel_rows: int) -> np.ndarray:
    """A, (6, 7 - kernel_rows): powers of 0, 1, -1, 2 and -2; the last product counts for the last output."""
    return powers(IN + 1 - kernel_rows)


@cache
def of_kernel(kernel_rows: int) -> np.ndarray:
    """G, (6, kernel_rows): the same powers, each row divided by what its product has too much."""
    return powers(kernel_rows) * np.array([[6], [-4], [-4], [1], [1], [24]]) / 24


def powers(count: int) -> np.ndarray:
    """The first powers of five numbers, and a sixth row for infinity, of which only the highest counts."""
    return np.array([*np.vander([0, 1, -1, 2, -2], count, increasing=True), np.eye(count, dtype=int)[-1]])
