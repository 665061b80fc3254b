"""Convolution in which every channel has a kernel of its own (Howard et al., MobileNets, 2017).

A matrix product for each channel would be a thin one. So each tap of the kernel multiplies a shifted image,
by a number for each channel, and the taps add up: ``by_taps`` is the readable form, and the one of a GPU.
Lecture section: back-propagation. Lesson: 02_backpropagation, by ``conv.py``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ..device import Array, array_module, on_gpu
from ..sums import column_sums, halved
from .geometry import Convolved, Geometry, blocks, cut_off, pad_rows_and_columns, strided_view
from .phases import sum_of_phases

CACHE = 1 << 21  # bytes of images taken at a time: in cache for all taps, and enough for one call of einsum


def fits(w: tuple[int, ...], geometry: Geometry) -> bool:
    """Whether each channel goes into one filter of its own; w is a shape."""
    return w[1] == 1 and w[0] == geometry.groups > 1


def by_taps(x: Array, w: Array, geometry: Geometry) -> Convolved:
    """x (N, H, W, C) and w (C, 1, kh, kw); the value is (N, H', W', C)."""
    xp, (_, height, width, channels) = array_module(x), x.shape
    padded, (ph, pw), (kh, kw) = pad_rows_and_columns(x, geometry.padding), geometry.padding, geometry.kernel
    output = geometry.output(height, width)
    taps = [(w[:, 0, i, j], (slice(None), *geometry.tap(i, j, *output))) for i, j in np.ndindex(kh, kw)]

    def to_image(g: Array) -> Array:
        d = xp.zeros((len(g), *padded.shape[1:]), g.dtype)
        for factor, place in taps:
            d[place] += g * factor
        return d[:, ph : ph + height, pw : pw + width]

    def to_kernel(g: Array) -> Array:
        sums = [(g * padded[place]).sum((0, 1, 2)) for _, place in taps]
        return xp.stack(sums, 1).reshape(channels, 1, kh, kw)

    y = xp.zeros((len(x), *output, channels), xp.result_type(x, w))
    for factor, place in taps:
        y += padded[place] * factor
    return y, (to_image, to_kernel)


def depthwise(x: Array, w: Array, geometry: Geometry) -> Convolved:
    """``by_taps``, of which einsum multiplies and adds all taps in one pass, along rows of W' C numbers.

    On a GPU it is ``by_taps``.
    """
    if on_gpu(x):
        return by_taps(x, w, geometry)

    def to_image(g: Array) -> Array:
        if geometry.stride == (1, 1):
            return correlate_turned(g, w, geometry.backward())
        return sum_of_phases(correlate_turned, g, w, geometry, x.shape)

    def to_kernel(g: Array) -> Array:
        n, rows, columns, channels = g.shape
        sums = np.empty((n, *geometry.kernel, columns * channels), g.dtype)  # of the rows of an image
        for images, taps, views in windows(x, geometry, g.dtype):
            part, out = g[images].reshape(views.shape[2:]), sums[images, :, taps]
            for i, j in np.ndindex(views.shape[:2]):
                np.einsum("nhr,nhr->nr", views[i, j], part, out=out[:, i, j])
        of_columns = column_sums(sums.reshape(n, w.size * columns)).reshape(-1, columns, channels)
        return halved(of_columns.swapaxes(0, 1)).T.reshape(w.shape)

    return correlate(x, w, geometry), (to_image, to_kernel)


def correlate(x: Array, w: Array, geometry: Geometry) -> Array:
    """The value of the convolution."""
    n, (rows, columns), channels = len(x), geometry.output(*x.shape[1:3]), x.shape[3]
    y = np.empty((n, rows, columns * channels), np.result_type(x, w))
    factors = np.tile(w[:, 0].transpose(1, 2, 0), columns).astype(y.dtype, copy=False)  # (kh, kw, W' C)
    for images, taps, views in windows(x, geometry, y.dtype):
        if taps.start == 0:
            np.einsum("ijnhr,ijr->nhr", views, factors[:, taps], out=y[images])
        else:
            y[images] += np.einsum("ijnhr,ijr->nhr", views, factors[:, taps])
    return y.reshape(n, rows, columns, channels)


def correlate_turned(g: Array, w: Array, geometry: Geometry) -> Array:
    """The convolution with the kernel turned round."""
    return correlate(g, w[:, :, ::-1, ::-1], geometry)


def windows(x: Array, geometry: Geometry, dtype: Any) -> Iterator[tuple[slice, slice, Array]]:
    """Some images at a time, some columns of taps, and what these see: a view (kh, taps, n, H', W' C).

    Columns of the padded images that are a stride apart stand side by side in a buffer, so a tap sees whole
    rows there; at stride 1 all taps come at once. Without padding and stride the images need no buffer. A
    view is good until the next.
    """
    (kh, kw), (down, across), _, (dh, dw), *_ = geometry
    rows, columns = geometry.output(*x.shape[1:3])
    x, (ph, pw) = cut_off(x, geometry.padding)
    n, height, width, channels = x.shape
    runs = blocks(n, height * width * channels * dtype.itemsize, CACHE)
    n = runs[0].stop if runs else 0  # the first run is the longest
    ready = (ph, pw, across) == (0, 0, 1) and x.dtype == dtype and x[:1, :1].flags.c_contiguous
    lines = x[:, :, None]
    if not ready:
        lines = np.zeros((n, height + 2 * ph, across, -(-(width + 2 * pw) // across), channels), dtype)
    image, row, _, pixel, number = lines.strides
    period = across // math.gcd(across, dw)  # taps so far apart see columns of one remainder
    for images in runs:
        n = images.stop - images.start
        for first in range(0 if ready else min(across, width)):
            column, remainder = divmod(first + pw, across)
            part = x[images, :, first::across]
            lines[:n, ph : ph + height, remainder, column : column + part.shape[2]] = part
        for first in range(min(period, kw)):
            column, remainder = divmod(first * dw, across)
            taps = slice(first, None, period)
            shape = kh, len(range(kw)[taps]), n, rows, columns * channels
            strides = dh * row, period * dw // across * pixel, image, down * row, number
            if ready:
                yield images, taps, as_strided(x[images], shape, strides)
            else:
                start = lines[0, 0, :remainder].size + column * channels
                yield images, taps, strided_view(lines, start, shape, strides)
