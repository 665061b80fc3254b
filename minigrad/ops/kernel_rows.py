"""Convolution as a product for each row of the kernel, which copies no window (after Cho and Brand 2017).

Images are channels-last, so a window sees one piece of memory in each row of the image, of kw C numbers.
Windows that are kw columns apart do not overlap: they are the rows of a matrix that need not be made, and kw
such matrices hold all windows. Each is multiplied by every row of the kernel, and the products are added up.
Lecture section: back-propagation. Lesson: 02_backpropagation, by ``conv.py``.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..device import Array, on_gpu
from .geometry import Convolved, Geometry, Place, blocks, cut_off, strided_view
from .groups import rotated_kernel, split_groups
from .im2col import SMALL, im2col

CACHE = 576 << 10  # bytes of products made at a time, which are in cache when they are added


def fits(geometry: Geometry) -> bool:
    """Whether neighbouring windows, and what they see of a row, lie side by side."""
    return geometry.stride == (1, 1) and geometry.dilation[1] == 1


def pays(images: int, w: Array, geometry: Geometry, height: int, width: int) -> bool:
    """Whether it takes less time than im2col: for many windows, and kernels of at least three columns.

    A product needs 8 channels and filters, and, to be a small one, few enough of them for 16 windows. Between
    rows there are windows for nothing, which may be an eighth (measured for images of 4 x 4 to 128 x 128).
    """
    (rows, columns), kw, (filters, channels) = geometry.output(height, width), geometry.kernel[1], w.shape[:2]
    filters //= geometry.groups
    enough = kw >= 3 and min(filters, channels) >= 8 and 16 * kw * channels * filters <= SMALL
    return (
        enough
        and images * rows * columns >= 512
        and 8 * pitch_of(width, columns, geometry.padding[1]) <= 9 * columns
    )


def pitch_of(width: int, columns: int, padding: int) -> int:
    """The pixels from one row to the next: the padding right of a row is also the one left of the next."""
    return max(width + padding, columns)


def kernel_rows(x: Array, w: Array, geometry: Geometry) -> Convolved:
    """x (N, H, W, C) and w (F, C / groups, kh, kw) where it ``fits``; the value is (N, H', W', F).

    On a GPU it is im2col.
    """
    if on_gpu(x):
        return im2col(x, w, geometry)

    def to_image(g: Array) -> Array:
        return correlate(g, rotated_kernel(w, geometry.groups), geometry.backward())

    def to_kernel(g: Array) -> Array:
        groups, (kh, kw), channels, filters = geometry.groups, geometry.kernel, w.shape[1], len(w)
        d = np.zeros((kh, groups, kw * channels, filters // groups), g.dtype)
        for place, windows, pitch in in_bands(x, geometry, filters, 4 * SMALL, CACHE):
            n, rows, columns, _ = g[place].shape
            _, _, _, _, parts, m, _ = windows.shape
            gs = np.zeros((1, n, parts * m * kw, filters), g.dtype)  # zeros for the windows between two rows
            gs[0, :, : rows * pitch].reshape(n, rows, pitch, filters)[:, :, :columns] = g[place]
            (gs,) = as_windows(gs, windows)
            for total, of_row in zip(d, windows, strict=True):
                total += (of_row.swapaxes(-1, -2) @ gs).sum(axis=(1, 2, 3))
        d = d.reshape(kh, groups, kw, channels, filters // groups)
        return d.transpose(1, 4, 3, 0, 2).reshape(w.shape)

    return correlate(x, w, geometry), (to_image, to_kernel)


def correlate(x: Array, w: Array, geometry: Geometry) -> Array:
    """The value of the convolution."""
    (kh, kw), filters, groups = geometry.kernel, len(w), geometry.groups
    kernel = w.reshape(groups, filters // groups, *w.shape[1:]).transpose(3, 0, 4, 2, 1)
    kernel = kernel.reshape(kh, groups, 1, 1, 1, kw * w.shape[1], filters // groups)
    y = np.empty((len(x), *geometry.output(*x.shape[1:3]), filters), np.result_type(x, w))
    products = np.empty(0, y.dtype)
    for place, windows, pitch in in_bands(x, geometry, filters, SMALL, CACHE // kh):
        n, rows, columns, _ = y[place].shape
        _, _, _, _, parts, m, _ = windows.shape
        shape = kh, n, parts * m * kw, filters
        products = products if products.shape == shape else np.empty(shape, y.dtype)
        np.matmul(windows, kernel, out=as_windows(products, windows))
        lines = products[:, :, : rows * pitch].reshape(kh, n, rows, pitch, filters)[:, :, :, :columns]
        np.add(lines[0], lines[1] if kh > 1 else 0, out=y[place])
        for line in lines[2:]:
            y[place] += line
    return y


def in_bands(
    x: Array, geometry: Geometry, filters: int, most: int, cache: int
) -> Iterator[tuple[Place, Array, int]]:
    """Some images at a time, or rows of one, and the windows: a view (kh, groups, n, kw, parts, m, kw C).

    Window number t of an image is [:, :, :, t % kw, t // kw // m, t // kw % m], and from one row to the next
    there are as many windows as the number that comes third. A product of m windows and all filters takes at
    most ``most`` multiplications, and outputs of one time about ``cache`` bytes.
    """
    (kh, kw), down, (rows, columns) = geometry.kernel, geometry.dilation[0], geometry.output(*x.shape[1:3])
    x, (ph, pw) = cut_off(x, geometry.padding)
    x, groups = split_groups(x, geometry.groups), geometry.groups
    _, n, height, width, channels = x.shape
    pitch = pitch_of(width, columns, pw)
    runs = blocks(n, rows * pitch * filters * x.itemsize, cache)
    n = runs[0].stop if runs else 0  # the first run is the longest
    bands = blocks(rows, n * pitch * filters * x.itemsize, cache)
    bands = blocks(rows, 1, -(-rows // len(bands)))  # of one length, which the matrices have
    of_one = -(-bands[0].stop * pitch // kw)
    parts = max(-(-of_one * kw * channels * filters // groups // most), 1)
    m = -(-of_one // parts)
    pixels = max(bands[-1].start + (kh - 1) * down, height + 2 * ph) * pitch + (parts * m + 1) * kw + pw
    flat = np.zeros((groups, n, pixels, channels), x.dtype)
    inside = flat[:, :, ph * pitch + pw :][:, :, : height * pitch]
    inside = inside.reshape(groups, n, height, pitch, channels)[:, :, :, :width]
    group, image, pixel, number = flat.strides
    for images in runs:
        n = images.stop - images.start
        inside[:, :n] = x[:, images]
        for band in bands:
            windows = strided_view(
                flat,
                band.start * pitch * channels,
                (kh, groups, n, kw, parts, m, kw * channels),
                (down * pitch * pixel, group, image, pixel, m * kw * pixel, kw * pixel, number),
            )
            yield (images, band), windows, pitch


def as_windows(outputs: Array, windows: Array) -> Array:
    """Outputs (rows, n, windows of an image, F) in the order of ``windows``: a view."""
    _, groups, n, kw, parts, m, _ = windows.shape
    outputs = outputs.reshape(len(outputs), n, parts, m, kw, groups, outputs.shape[3] // groups)
    return outputs.transpose(0, 5, 1, 4, 2, 3, 6)
