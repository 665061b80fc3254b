"""Convolution as products of windows in columns, which copies no window (after Cho and Brand 2017).

Images are channels-last, so a window sees one piece of memory in each row of the image, of kw C numbers. The
windows that begin in one column are the rows of a matrix that need not be made: from each to the next it is
a row of the image. Every such matrix is multiplied by every row of the kernel, and the products are added up.
Lecture section: back-propagation. Lesson: 02_backpropagation, by ``fast/conv.py``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ...device import Array, on_gpu
from ..conv import Convolved
from ..geometry import Geometry
from .groups import rotated_kernel, split_groups
from .im2col import SMALL, im2col, parts_of
from .im2col import correlate as correlate_windows
from .images import Place, blocks, cut_off, strided_view
from .phases import sum_of_phases

IMAGE_BYTES = 4 << 20  # bytes of images, and of products, at a time
LEAST = 15_000  # windows times channels for which it takes less time than im2col
FEW_ROWS = 64  # of matrices with fewer rows the kernel's gradient would be a sum of too many products
FEW_FILTERS = 32  # OpenBLAS makes products of so short rows slowly, but not their transposes


class KernelRow(NamedTuple):
    """What row ``number`` of the kernel sees of a band, without the rows that are padding only.

    ``windows`` is a view (groups, parts, starts, m, kw C): there are parts m lines, and ``starts`` windows
    begin in each.
    """

    number: int
    outputs: slice  # rows of the band
    windows: Array


def can_take(w: tuple[int, ...], geometry: Geometry) -> bool:
    """Whether what a window sees of a row lies side by side."""
    return geometry.dilation[1] == 1


def pays(x: tuple[int, ...], w: tuple[int, ...], geometry: Geometry) -> bool:
    """Whether it takes less time than im2col: for many windows, and kernels of at least three columns.

    A product needs 8 channels and filters, and few enough of them for 16 windows in a small one, or 48 at a
    stride. The fewer channels, the more windows make up for the calls (measured for 4 x 4 to 64 x 64 pixels).
    """
    kw, (filters, channels), (images, height, width, _) = geometry.kernel[1], w[:2], x
    filters //= geometry.groups
    fewest, rows = min(filters, channels), 16 if geometry.stride == (1, 1) else 48
    windows = images * math.prod(geometry.output(height, width))
    enough = windows * fewest * geometry.groups >= LEAST
    return enough and kw >= 3 and fewest >= 8 and rows * kw * channels * filters <= SMALL


def kernel_rows(x: Array, w: Array, geometry: Geometry, bias: Array | None = None) -> Convolved:
    """x (N, H, W, C) and w (F, C / groups, kh, kw) that it ``can_take``; the value is (N, H', W', F).

    On the host the value may have a bias (F,). On a GPU it is im2col.
    """
    if on_gpu(x):
        return im2col(x, w, geometry)

    def to_image(g: Array) -> Array:
        if geometry.stride == (1, 1):
            return correlate_turned(g, w, geometry.backward())
        return sum_of_phases(correlate_turned, g, w, geometry, x.shape)

    return correlate(x, w, geometry, bias), (to_image, lambda g: kernel_gradient(x, g, w.shape, geometry))


def correlate(x: Array, w: Array, geometry: Geometry, bias: Array | None = None) -> Array:
    """The value of the convolution."""
    (kh, kw), filters, groups = geometry.kernel, len(w), geometry.groups
    kernel = w.reshape(groups, filters // groups, *w.shape[1:]).transpose(3, 0, 4, 2, 1)
    kernel = kernel.reshape(kh, groups, 1, 1, kw * w.shape[1], filters // groups)
    y = np.empty((len(x), *geometry.output(*x.shape[1:3]), filters), np.result_type(x, w))
    buffers = np.empty(0, y.dtype)
    for place, shape, kernel_rows in in_bands(x, geometry, filters, SMALL):
        buffers = buffers if buffers.shape == (2, *shape) else np.empty((2, *shape), y.dtype)
        total, products = buffers
        in_place = shape[1:] == (1, *y.shape[2:])  # of one image the sums are written where they stay
        if in_place:
            total = y[place].reshape(shape)
        whole = kernel_rows[0].outputs if kernel_rows else slice(0)
        total[: whole.start] = total[whole.stop :] = 0
        for number, outputs, windows in kernel_rows:
            out = (total if outputs is whole else products)[outputs]
            np.matmul(windows, kernel[number], out=as_windows(out, windows))
            if outputs is not whole:
                total[outputs] += out
        if bias is not None:  # many channels at a time, as in ``conv2d``
            total.reshape(shape[0] * shape[1], shape[2] * filters)[...] += np.tile(bias, shape[2])
        if not in_place:
            y[place] = total[:, :, : y.shape[2]].swapaxes(0, 1)
    return y


def correlate_turned(g: Array, w: Array, geometry: Geometry) -> Array:
    """The convolution of a gradient with the kernel turned round; im2col has one column in less time."""
    form = correlate if geometry.kernel[1] > 1 else correlate_windows
    return form(g, rotated_kernel(w, geometry.groups), geometry)


def kernel_gradient(x: Array, g: Array, shape: tuple[int, ...], geometry: Geometry) -> Array:
    """The pullback to the kernel, (F, C / groups, kh, kw)."""
    groups, (kh, kw), (filters, channels) = geometry.groups, geometry.kernel, shape[:2]
    filters //= groups
    turned = filters < FEW_FILTERS
    sizes = (filters, kw * channels) if turned else (kw * channels, filters)
    d = np.zeros((kh, groups, *sizes), g.dtype)
    most = SMALL if FEW_ROWS * math.prod(sizes) <= SMALL else 4 * SMALL
    for place, shape_of_band, kernel_rows in in_bands(x, geometry, g.shape[3], most):
        if shape_of_band[1:] == (1, *g.shape[2:]):
            gs = np.ascontiguousarray(g[place]).reshape(shape_of_band)
        else:
            gs = np.empty(shape_of_band, g.dtype)
            gs[:, :, : g.shape[2]] = g[place].swapaxes(0, 1)
            gs[:, :, g.shape[2] :] = 0
        for number, outputs, windows in kernel_rows:
            a, b = windows, as_windows(gs[outputs], windows)
            if turned:
                a, b = b, a
            for columns in blocks(a.shape[2], a.shape[1] * d[0].nbytes, IMAGE_BYTES):
                products = a[:, :, columns].swapaxes(-1, -2) @ b[:, :, columns]
                d[number] += products.sum(axis=(1, 2))
    if turned:
        d = d.swapaxes(-1, -2)
    return d.reshape(kh, groups, kw, channels, filters).transpose(1, 4, 3, 0, 2).reshape(shape)


def in_bands(
    x: Array, geometry: Geometry, filters: int, most: int
) -> Iterator[tuple[Place, tuple[int, ...], list[KernelRow]]]:
    """Some images at a time, or rows of one; the shape of their outputs; what each row of the kernel sees.

    The images lie ``in_lines``, so what a row of the kernel sees of a band is one piece. A signal, which is
    an image of one row, is cut into lines as long as a small product needs. Outputs (rows, n, columns, F) may
    have a few columns more than the images. The rows of the kernel that see most rows come first.
    """
    (kh, kw), (down, across), _, (dilation, _), groups, _ = geometry
    rows, columns = geometry.output(*x.shape[1:3])
    x, (ph, pw) = cut_off(x, geometry.padding)
    x = split_groups(x, groups)
    _, n, height, width, channels = x.shape
    pitch = step = max(width + pw, kw)  # the padding right of a row is also the one left of the next
    starts = columns
    if rows == across == 1:
        pitch = max(pitch, columns)
        step = starts = max(kw, -(-pitch * kw * channels * filters // (groups * SMALL)))
        pitch = -(-pitch // step) * step
    pieces, height_of_phase = pitch // step, -(-height // down)
    bytes_each = (down * pitch * channels * groups + 2 * pieces * starts * filters) * x.itemsize
    runs = equal_blocks(n, rows * bytes_each)
    bands = equal_blocks(rows, (runs[0].stop if runs else 0) * bytes_each)
    for images in runs:
        n = images.stop - images.start
        flat = in_lines(x[:, images], down, pitch, pw, max(pw, kw))
        group, pixel, number = flat.strides
        for band in bands:
            kernel_rows = []
            for i in range(kh):
                top, phase = divmod(i * dilation - ph, down)
                first, last = max(band.start, -top), min(band.stop, -(-(height - phase) // down) - top)
                if first < last:
                    parts, m = parts_of((last - first) * n * pieces, kw * channels, filters // groups, most)
                    windows = strided_view(
                        flat,
                        (phase * height_of_phase + first + top) * n * pitch * channels,
                        (groups, parts, starts, m, kw * channels),
                        (group, m * step * pixel, across * pixel, step * pixel, number),
                    )
                    kernel_rows.append(KernelRow(i, slice(first - band.start, last - band.start), windows))
            kernel_rows.sort(key=lambda row: row.outputs.start - row.outputs.stop)
            yield (images, band), (band.stop - band.start, n, pieces * starts, filters), kernel_rows


def in_lines(x: Array, down: int, pitch: int, left: int, right: int) -> Array:
    """Images (groups, n, H, W, C) as pixels (groups, ..., C): the first rows of all, then the second ones.

    Rows of one remainder modulo ``down`` come first. There are ``pitch`` pixels from one row to the next,
    ``left`` before the first and ``right`` behind the last; those without an image's are zero.
    """
    groups, n, height, width, channels = x.shape
    shape = groups, down, -(-height // down), n, pitch, channels
    size = math.prod(shape[1:5])
    flat = np.empty((groups, size + right, channels), x.dtype)
    lines = flat[:, left : left + size].reshape(shape)
    flat[:, :left] = lines[..., width:, :] = flat[:, size:] = 0
    for phase in range(min(down, height)):
        part = x[:, :, phase::down].swapaxes(1, 2)
        lines[:, phase, : part.shape[1], :, :width] = part
    return flat


def equal_blocks(n: int, bytes_each: int) -> list[slice]:
    """``blocks`` that fit in the cache, as equal as their number allows."""
    return blocks(n, 1, -(-n // max(len(blocks(n, bytes_each, IMAGE_BYTES)), 1)))


def as_windows(outputs: Array, windows: Array) -> Array:
    """Outputs (rows, n, columns, F) in the order of ``windows``, (groups, parts, starts, m, F / groups)."""
    groups, parts, starts, m, _ = windows.shape
    outputs = outputs.reshape(parts, m, starts, groups, outputs.shape[3] // groups)
    return outputs.transpose(3, 0, 2, 1, 4)
