"""Convolution on a GPU: a kernel copies windows, another adds them up; ``im2col`` is the readable form.

Lecture section: GPU against CPU. Lesson: 04_gpu.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ...device import Array, array_module, elementwise_kernel
from ...product import product
from ..conv import Convolved
from ..geometry import Geometry
from .images import blocks

MOST_BYTES = 1 << 28  # of copied windows at a time: few large products are best
SIZES = "height, width, channels, rows, columns, kh, kw, down, across, dh, dw, ph, pw"


def can_take(x: Array, geometry: Geometry) -> bool:
    """Whether 32 bits are enough to number the elements of one image (N, H, W, C) and of its windows."""
    return most_elements(x, geometry) < 1 << 31


def im2col(x: Array, w: Array, geometry: Geometry) -> Convolved:
    """Windows of x (N, H, W, C), one per row, in w's order (C, kh, kw), so that w's gradient needs no other.

    The image gradient is g times w, added up where the windows stood; there w is put in the images' order
    (kh, kw, C), so that neighbouring threads read neighbouring numbers.
    """
    xp, (n, height, width, channels) = array_module(x), x.shape
    rows, columns = geometry.output(height, width)
    matrix = w.reshape(len(w), math.prod(w.shape[1:]))
    size = most_elements(x, geometry) * x.itemsize
    runs = blocks(n, size, MOST_BYTES)
    sizes = [height, width, channels, rows, columns, *geometry.kernel]
    sizes += [*geometry.stride, *geometry.dilation, *geometry.padding]

    def windows(images: slice) -> Array:
        copies = xp.empty(((images.stop - images.start) * rows * columns, matrix.shape[1]), x.dtype)
        copy_kernel()(x[images], *sizes, copies)
        return copies

    def as_rows(y: Array) -> Array:
        return y.reshape(math.prod(y.shape[:3]), len(w))

    def to_image(g: Array) -> Array:
        d, by_tap = (
            xp.empty((len(g), *x.shape[1:]), xp.result_type(g, w)),
            w.transpose(0, 2, 3, 1).reshape(matrix.shape),
        )
        for images in blocks(len(g), size, MOST_BYTES):
            sum_kernel()(product(as_rows(g[images]), by_tap), *sizes, d[images])
        return d

    def to_kernel(g: Array) -> Array:
        d = (xp.empty if len(runs) == 1 else xp.zeros)(w.shape, xp.result_type(g, x))
        total = d.reshape(matrix.shape)
        for images in runs:
            gs = as_rows(g[images]).T
            if len(runs) == 1:
                product(gs, windows(images), out=total)
            else:
                total += product(gs, windows(images))
        return d

    y = xp.empty((n, rows, columns, len(w)), xp.result_type(x, w))
    for images in runs:
        product(windows(images), matrix.T, out=as_rows(y[images]))
    return y, (to_image, to_kernel)


def most_elements(x: Array, geometry: Geometry) -> int:
    """The number of elements of one image, or of its windows, whichever is larger."""
    windows = (*geometry.output(*x.shape[1:3]), *geometry.kernel, x.shape[3])
    return max(math.prod(x.shape[1:]), math.prod(windows))


def copy_kernel() -> Callable:
    """The element of the images that each place of each window sees, zero outside of them."""
    statements = """
        int e = i;
        int kx = e % kw; e = e / kw;
        int ky = e % kh; e = e / kh;
        int c = e % channels; e = e / channels;
        int column = e % columns * across + kx * dw - pw; e = e / columns;
        int row = e % rows * down + ky * dh - ph; e = e / rows;
        ptrdiff_t n = e;
        y = 0;
        if ((row >= 0) & (row < height) & (column >= 0) & (column < width)) {
            y = x[((n * height + row) * width + column) * channels + c];
        }"""
    return elementwise_kernel(f"raw T x, {int32(SIZES)}", "T y", statements, "copy_windows")


def sum_kernel() -> Callable:
    """For each element of the images the sum of the ``shares`` of all windows that see it."""
    statements = """
        int e = i;
        int c = e % channels; e = e / channels;
        int column = e % width + pw; e = e / width;
        int row = e % height + ph;
        ptrdiff_t n = e / height;
        T total = 0;
        for (int ky = 0; ky < kh; ++ky) {
            for (int kx = 0; kx < kw; ++kx) {
                int a = row - ky * dh;
                int b = column - kx * dw;
                if ((a >= 0) & (a % down == 0) & (a / down < rows)
                    & (b >= 0) & (b % across == 0) & (b / across < columns)) {
                    ptrdiff_t window = (n * rows + a / down) * columns + b / across;
                    total = total + shares[((window * kh + ky) * kw + kx) * channels + c];
                }
            }
        }
        d = total;"""
    return elementwise_kernel(f"raw T shares, {int32(SIZES)}", "T d", statements, "sum_windows")


def int32(names: str) -> str:
    return ", ".join(f"int32 {name}" for name in names.split(", "))
