"""Convolution as one matrix product: what each window sees becomes a row (Chellapilla et al. 2006).

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``conv.py``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from ..device import Array, array_module, on_gpu
from . import im2col_kernels
from .geometry import Convolved, Geometry, Place, blocks, cut_off
from .product import product

CACHE = 1 << 20  # bytes of columns made at a time, so that the product finds them in cache
SMALL = 1_000_000  # multiplications in one product; up to this number OpenBLAS is a third faster
LARGE = (
    1 << 18
)  # elements of a kernel that is not copied across its memory order, which takes five times as long
FEW_CHANNELS = 8  # with fewer channels a window's rows are too short to copy one by one


def im2col(x: Array, w: Array, geometry: Geometry) -> Convolved:
    """The windows of a few images at a time, one per row, times the kernel as a (kh kw C, F) matrix.

    x is (N, H, W, C), w (F, C, kh, kw); the value is (N, H', W', F). Backward makes the rows again:
    they are kh kw times as large as the images, and copying is cheaper than storing them.
    """
    if on_gpu(x) and im2col_kernels.fits(x, geometry):
        return im2col_kernels.im2col(x, w, geometry)

    def to_image(g: Array) -> Array:
        if geometry.stride != (1, 1):
            return add_back(g, w, geometry, x.shape)
        turned = w[:, :, ::-1, ::-1].transpose(1, 0, 2, 3)
        return correlate(g, turned, geometry.backward())

    def to_kernel(g: Array) -> Array:
        size, large = math.prod(w.shape[1:]), w.size > LARGE
        d = array_module(g).zeros((len(w), size) if large else (size, len(w)), g.dtype)
        for place, stack in in_blocks(x, geometry, len(w)):
            gs = g[place].reshape(*stack.shape[:2], len(w))
            d += stack_products(gs, stack) if large else stack_products(stack, gs)
        if large:
            return d.reshape(len(w), *geometry.kernel, x.shape[3]).transpose(0, 3, 1, 2)
        return d.reshape(*geometry.kernel, x.shape[3], len(w)).transpose(3, 2, 0, 1)

    return correlate(x, w, geometry), (to_image, to_kernel)


def correlate(x: Array, w: Array, geometry: Geometry) -> Array:
    """The value of the convolution."""
    xp, matrix = array_module(x), as_matrix(w)
    y = xp.empty((len(x), *geometry.output(*x.shape[1:3]), len(w)), xp.result_type(x, w))
    for place, stack in in_blocks(x, geometry, len(w)):
        out = y[place].reshape(*stack.shape[:2], len(w))
        if len(stack) == 1:
            stack, out = stack[0], out[0]  # a stack of a transposed matrix is one that CuPy copies
        product(stack, matrix, out=out)
    return y


def stack_products(a: Array, b: Array) -> Array:
    """The sum of a[i].T b[i]."""
    return product(a[0].T, b[0]) if len(a) == 1 else (a.transpose(0, 2, 1) @ b).sum(0)


def add_back(g: Array, w: Array, geometry: Geometry, shape: tuple[int, ...]) -> Array:
    """The input gradient at any stride: each window's share is added where the window stood."""
    xp, matrix, (_, height, width, channels) = array_module(g), as_matrix(w).T, shape
    (ph, pw), (kh, kw), (rows, columns) = geometry.padding, geometry.kernel, g.shape[1:3]
    d = xp.zeros((len(g), height + 2 * ph, width + 2 * pw, channels), g.dtype)
    for images in blocks(len(g), rows * columns * matrix.shape[1] * g.itemsize, CACHE):
        part = g[images]
        shares = product(part.reshape(math.prod(part.shape[:3]), len(w)), matrix)
        shares = shares.reshape(len(part), rows, columns, kh, kw, channels)
        for i in range(kh):
            for j in range(kw):
                d[(images, *geometry.tap(i, j, rows, columns))] += shares[:, :, :, i, j]
    return d[:, ph : ph + height, pw : pw + width]


def in_blocks(x: Array, geometry: Geometry, filters: int) -> Iterator[tuple[Place, Array]]:
    """Some images at a time, or rows of one, and their windows as matrices (n, windows / n, kh kw C).

    They are good until the next. The padded images and the matrices lie in two buffers, which therefore stay
    in cache; both are stored channel by channel where there are few, so that whole rows can be copied.
    """
    xp, few, itemsize = array_module(x), x.shape[3] < FEW_CHANNELS, x.itemsize
    rows, columns = geometry.output(*x.shape[1:3])
    x, (ph, pw) = cut_off(x, geometry.padding)
    n, h, w, c = x.shape
    size = geometry.kernel[0] * geometry.kernel[1] * c
    cache = max(CACHE, size * filters * itemsize)  # the products read the kernel once for each run
    runs = blocks(n, rows * columns * size * itemsize, cache)
    if geometry.kernel == geometry.stride == (1, 1) and not ph and not pw:  # the windows are there already
        for images in runs:
            matrix = x[images].reshape((images.stop - images.start) * rows * columns, c)
            products = n_products(matrix, filters)
            yield (images, slice(rows)), matrix.reshape(products, len(matrix) // products, c)
        return
    n = runs[0].stop if runs else 0  # the first run is the longest
    bands = blocks(rows, n * columns * size * itemsize, cache)
    room = n, h + 2 * ph, w + 2 * pw
    padded = xp.zeros((c, *room), x.dtype).transpose(1, 2, 3, 0) if few else xp.zeros((*room, c), x.dtype)
    patches = windows(padded, geometry, rows, columns)
    buffer = xp.empty(n * bands[0].stop * columns * size, x.dtype)
    for images in runs:
        n = images.stop - images.start
        padded[:n, ph : ph + h, pw : pw + w] = x[images]
        for band in bands:
            part = patches[:n, band].transpose(3, 4, 5, 0, 1, 2) if few else patches[:n, band]
            copy = buffer[: part.size].reshape(part.shape)
            copy[...] = part
            n_rows = n * (band.stop - band.start) * columns
            matrix = copy.reshape(size, n_rows).T if few else copy.reshape(n_rows, size)
            products = n_products(matrix, filters)
            yield (images, band), matrix.reshape(products, n_rows // products, size)


def n_products(rows: Array, filters: int) -> int:
    """Into how many equal parts to cut the rows, so that each makes a small product with all filters."""
    enough = -(-rows.size * filters // SMALL)
    if enough <= 1:
        return 1
    return next((n for n in range(enough, 4 * enough) if len(rows) % n == 0 and len(rows) >= 16 * n), 1)


def windows(padded: Array, geometry: Geometry, rows: int, columns: int) -> Array:
    """What each window of padded images (N, H, W, C) sees, (N, rows, columns, kh, kw, C): a view."""
    image, row, column, channel = padded.strides
    (down, right), (i, j) = geometry.stride, geometry.dilation
    return array_module(padded).lib.stride_tricks.as_strided(
        padded,
        (len(padded), rows, columns, *geometry.kernel, padded.shape[3]),
        (image, row * down, column * right, row * i, column * j, channel),
    )


def as_matrix(w: Array) -> Array:
    """The kernel (F, C, kh, kw) as a matrix (kh kw C, F), a large one copied along its memory order."""
    if w.size > LARGE and w.strides[0] > w.strides[1]:
        return w.transpose(0, 2, 3, 1).reshape(len(w), math.prod(w.shape[1:])).T
    return w.transpose(2, 3, 1, 0).reshape(math.prod(w.shape[1:]), len(w))
