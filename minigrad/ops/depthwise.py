"""Convolution in which every channel has a kernel of its own (Howard et al., MobileNets, 2017).

A matrix product for each channel would be a thin one. So each tap of the kernel multiplies a shifted image,
by a number for each channel, and the taps add up.
Lecture section: back-propagation. Lesson: 02_backpropagation, by ``conv.py``.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..device import Array, array_module
from .geometry import Convolved, Geometry, blocks, pad_rows_and_columns
from .product import product

CACHE = 1 << 19  # bytes of images taken at a time, so that all taps find them in cache


def fits(w: Array, geometry: Geometry) -> bool:
    """Whether each channel goes into one filter of its own."""
    return w.shape[1] == 1 and len(w) == geometry.groups > 1


def depthwise(x: Array, w: Array, geometry: Geometry) -> Convolved:
    """x (N, H, W, C) and w (C, 1, kh, kw); the value is (N, H', W', C).

    Rows of the output are taken as wholes, of W' C elements: NumPy is slow along short axes.
    """
    xp, (_, height, width, channels) = array_module(x), x.shape
    rows, columns = geometry.output(height, width)
    (ph, pw), (kh, kw) = geometry.padding, geometry.kernel
    size = height * width * channels * x.itemsize
    factors = xp.tile(w[:, 0].transpose(1, 2, 0), columns)  # (kh, kw, W' C)

    def views(images: slice) -> Iterator[tuple[int, int, Array]]:
        """For each tap what it sees of some images, (n, H', W' C)."""
        padded = pad_rows_and_columns(x[images], (ph, pw))
        for j in range(kw):
            _, across = geometry.tap(0, j, rows, columns)
            lines = padded[:, :, across].reshape(*padded.shape[:2], columns * channels)
            for i in range(kh):
                yield i, j, lines[:, geometry.tap(i, j, rows, columns)[0]]

    def to_image(g: Array) -> Array:
        d = xp.zeros((len(g), height + 2 * ph, width + 2 * pw, channels), g.dtype)
        for images in blocks(len(g), size, CACHE):
            part = g[images].reshape(-1, rows, columns * channels)
            for j in range(kw):
                lines = xp.zeros((len(part), d.shape[1], columns * channels), g.dtype)
                for i in range(kh):
                    lines[:, geometry.tap(i, j, rows, columns)[0]] += part * factors[i, j]
                _, across = geometry.tap(0, j, rows, columns)
                d[images, :, across] += lines.reshape(*lines.shape[:2], columns, channels)
        return d[:, ph : ph + height, pw : pw + width]

    def to_kernel(g: Array) -> Array:
        sums = xp.zeros((kh, kw, columns * channels), g.dtype)
        for images in blocks(len(g), size, CACHE):
            part = g[images].reshape(-1, rows, columns * channels)
            ones = xp.ones(len(part) * rows, g.dtype)
            for i, j, view in views(images):
                sums[i, j] += product(ones, (part * view).reshape(len(ones), -1))
        return sums.reshape(kh, kw, columns, channels).sum(axis=2).transpose(2, 0, 1)[:, None]

    y = xp.empty((len(x), rows, columns * channels), xp.result_type(x, w))
    for images in blocks(len(x), size, CACHE):
        y[images] = 0
        for i, j, view in views(images):
            y[images] += view * factors[i, j]
    return y.reshape(len(x), rows, columns, channels), (to_image, to_kernel)
