"""Convolution as one matrix product: what each window sees becomes a row (Chellapilla et al. 2006)."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from ..device import Array, array_module
from .geometry import Convolved, Geometry, blocks, pad_rows_and_columns

CACHE = 1 << 20  # bytes of columns made at a time, so that the product finds them in cache
DEVICE = 1 << 28  # the same on a GPU, where few large products are best
FEW_CHANNELS = 8  # below so many a window's rows are too short to be copied one by one


def im2col(x: Array, w: Array, geometry: Geometry) -> Convolved:
    """The windows of a few images at a time, one per row, times the kernel as a (kh kw C, F) matrix.

    x is (N, H, W, C), w (F, C, kh, kw); the value is (N, H', W', F). The rows are made anew going back:
    they are kh kw times as large as the images, and copying is cheaper than keeping.
    """

    def to_image(g: Array) -> Array:
        if geometry.stride != (1, 1):
            return add_back(g, w, geometry, x.shape)
        turned = w[:, :, ::-1, ::-1].transpose(1, 0, 2, 3)
        return correlate(g, turned, geometry.backward())

    def to_kernel(g: Array) -> Array:
        seen, d = windows(x, geometry), array_module(g).zeros((w[0].size, len(w)), g.dtype)
        for images, rows in in_blocks(seen):
            d += rows.T @ g[images].reshape(-1, len(w))
        return d.reshape(*geometry.kernel, x.shape[3], len(w)).transpose(3, 2, 0, 1)

    return correlate(x, w, geometry), (to_image, to_kernel)


def correlate(x: Array, w: Array, geometry: Geometry) -> Array:
    """The value of the convolution."""
    xp, seen, matrix = array_module(x), windows(x, geometry), as_matrix(w)
    y = xp.empty((*seen.shape[:3], len(w)), xp.result_type(x, w))
    for images, rows in in_blocks(seen):
        xp.matmul(rows, matrix, out=y[images].reshape(-1, len(w)))
    return y


def add_back(g: Array, w: Array, geometry: Geometry, shape: tuple[int, ...]) -> Array:
    """The input gradient at any stride: each window's share is added where the window stood."""
    xp, matrix, (n, height, width, channels) = array_module(g), as_matrix(w).T, shape
    (ph, pw), (kh, kw), (rows, columns) = geometry.padding, geometry.kernel, g.shape[1:3]
    d = xp.zeros((n, height + 2 * ph, width + 2 * pw, channels), g.dtype)
    for images in image_blocks(windows(d, geometry._replace(padding=(0, 0)))):
        shares = (g[images].reshape(-1, len(w)) @ matrix).reshape(-1, rows, columns, kh, kw, channels)
        for i in range(kh):
            for j in range(kw):
                d[(images, *geometry.tap(i, j, rows, columns))] += shares[:, :, :, i, j]
    return d[:, ph : ph + height, pw : pw + width]


def windows(x: Array, geometry: Geometry) -> Array:
    """What each window of x (N, H, W, C) sees, (N, H', W', kh, kw, C): a view of the padded images."""
    xp, (n, _, _, channels) = array_module(x), x.shape
    if channels < FEW_CHANNELS:  # planes of one channel each, so that whole rows of the image can be copied
        x = xp.ascontiguousarray(x.transpose(3, 0, 1, 2)).transpose(1, 2, 3, 0)
    padded = pad_rows_and_columns(x, geometry.padding)
    image, row, column, channel = padded.strides
    (down, right), (i, j) = geometry.stride, geometry.dilation
    return xp.lib.stride_tricks.as_strided(
        padded,
        (n, *geometry.output(*x.shape[1:3]), *geometry.kernel, channels),
        (image, row * down, column * right, row * i, column * j, channel),
    )


def in_blocks(seen: Array) -> Iterator[tuple[slice, Array]]:
    """Some images at a time, and their windows as a matrix (windows, kh kw C), good until the next.

    The matrices are copies in one buffer, which therefore stays in cache; stored by columns where there
    are few channels.
    """
    few, buffer = seen.shape[5] < FEW_CHANNELS, None
    for images in image_blocks(seen):
        part = seen[images]
        n_windows = math.prod(part.shape[:3])
        part = part.transpose(3, 4, 5, 0, 1, 2) if few else part
        if buffer is None:  # the first block is the largest
            buffer = array_module(seen).empty(part.size, seen.dtype)
        copy = buffer[: part.size].reshape(part.shape)
        copy[...] = part
        yield images, copy.reshape(-1, n_windows).T if few else copy.reshape(n_windows, -1)


def image_blocks(seen: Array) -> list[slice]:
    """Runs of images whose windows, copied, stay in cache."""
    limit = CACHE if array_module(seen) is np else DEVICE
    return blocks(len(seen), math.prod(seen.shape[1:]) * seen.itemsize, limit)


def as_matrix(w: Array) -> Array:
    """The kernel (F, C, kh, kw) as a matrix (kh kw C, F)."""
    return w.transpose(2, 3, 1, 0).reshape(-1, len(w))
