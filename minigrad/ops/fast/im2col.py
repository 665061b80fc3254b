"""Convolution as one matrix product: what each window sees becomes a row (Chellapilla et al. 2006).

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``fast/conv.py``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache

from ...device import Array, array_module, on_gpu
from ...product import product
from ..conv import Convolved
from ..geometry import Geometry
from . import im2col_kernels
from .groups import one_by_one, rotated_kernel, split_groups
from .images import Place, blocks, cut_off, padded_images, pixels, strided_view
from .phases import sum_of_phases

COLUMN_BYTES = 1 << 20  # bytes of columns made at a time, so that the product finds them in cache
SMALL = 1_000_000  # multiplications in one product; up to this number OpenBLAS is a third faster
LARGE = 1 << 18  # elements of a kernel; a larger one is not copied across its memory order (5 times as long)
NARROW = 16  # numbers of a window that OpenBLAS takes together; with fewer the transposed product is faster
SHORT_ROW = 64  # outputs; rows of images that are as short are copied once for a column of the kernel
FEW_CHANNELS = 8  # with fewer channels a window's rows are too short to copy one by one


def im2col(x: Array, w: Array, geometry: Geometry, bias: Array | None = None) -> Convolved:
    """The windows of a few images at a time, one per row, times the kernel as a (kh kw C, F) matrix.

    x is (N, H, W, C), w (F, C / groups, kh, kw); the value is (N, H', W', F). Backward makes the rows again:
    they are kh kw times as large as the images, and copying is cheaper than storing them. With few channels
    on the host the value may have a bias (F,).
    """
    if on_gpu(x) and im2col_kernels.can_take(x, geometry):
        return one_by_one(im2col_kernels.im2col)(x, w, geometry)

    def to_image(g: Array) -> Array:
        channels, filters = w.shape[1], len(w) // geometry.groups
        if channels < FEW_CHANNELS and 4 * channels * math.prod(geometry.stride) <= filters:
            return add_back(g, w, geometry, x.shape)
        if geometry.stride != (1, 1):
            return sum_of_phases(correlate_turned, g, w, geometry, x.shape)
        return correlate_turned(g, w, geometry.backward())

    return correlate(x, w, geometry, bias), (to_image, lambda g: kernel_gradient(x, g, w, geometry))


def has_few_channels(w: tuple[int, ...]) -> bool:
    """Whether the product adds a bias, too, as one more number of each window; w is a shape."""
    return w[1] < FEW_CHANNELS


@lru_cache
def is_small(x: tuple[int, ...], w: tuple[int, ...], geometry: Geometry, itemsize: int) -> bool:
    """Whether all windows fit in the cache, and make one product; x and w are shapes."""
    weights, count = math.prod(w), x[0] * math.prod(geometry.output(*x[1:3]))
    one = geometry.groups == 1 and weights <= LARGE and 0 < count * weights <= SMALL
    return one and count * math.prod(w[1:]) * itemsize <= COLUMN_BYTES


def all_windows(x: Array, geometry: Geometry, ones: bool = False) -> Array:
    """A matrix of all windows, (m, kh kw C); with few channels (m, C kh kw), and with ``ones`` a 1 behind."""
    (n, height, width, channels), (kh, kw) = x.shape, geometry.kernel
    rows, columns = geometry.output(height, width)
    padded = array_module(x).ascontiguousarray(padded_images(x, geometry.padding))
    patches = strided_view(padded, 0, *windows(padded, geometry, rows, columns))
    m, size = n * rows * columns, kh * kw * channels
    if channels >= FEW_CHANNELS:
        return patches.reshape(m, size)
    matrix = array_module(x).empty((size + ones, m), x.dtype)  # rows of images are longer than of windows
    matrix[:size].reshape(channels, kh, kw, n, rows, columns)[...] = patches.transpose(5, 3, 4, 0, 1, 2)
    matrix[size:] = 1
    return matrix.T


def kernel_gradient(x: Array, g: Array, w: Array, geometry: Geometry) -> Array:
    """The pullback to the kernel."""
    groups, channels, (kh, kw) = geometry.groups, w.shape[1], geometry.kernel
    filters, size = len(w) // groups, math.prod(w.shape[1:])
    if is_small(x.shape, w.shape, geometry, x.itemsize):
        matrix = all_windows(x, geometry)
        d = product(g.reshape(len(matrix), filters).T, matrix)
        few = channels < FEW_CHANNELS
        return d.reshape(w.shape) if few else d.reshape(filters, kh, kw, channels).transpose(0, 3, 1, 2)
    turned = size < NARROW or w.size > LARGE  # which takes less time then
    d = array_module(g).zeros((groups, filters, size) if turned else (groups, size, filters), g.dtype)
    for place, stacks in in_blocks(x, geometry, len(w)):
        gs = as_stacks(g[place], stacks)
        d += sum_of_products(gs, stacks) if turned else sum_of_products(stacks, gs)
    if not turned:
        d = d.transpose(0, 2, 1)
    return d.reshape(groups, filters, kh, kw, channels).transpose(0, 1, 4, 2, 3).reshape(w.shape)


def correlate(x: Array, w: Array, geometry: Geometry, bias: Array | None = None) -> Array:
    """The value of the convolution, with the bias: it is a row of the kernel, for a column of ones."""
    xp, groups, (rows, columns) = array_module(x), geometry.groups, geometry.output(*x.shape[1:3])
    if is_small(x.shape, w.shape, geometry, x.itemsize):
        kernel = (w if w.shape[1] < FEW_CHANNELS else w.transpose(0, 2, 3, 1)).reshape(len(w), w[0].size)
        if bias is not None:
            kernel = xp.concatenate([kernel, bias[:, None]], axis=1)
        y = product(all_windows(x, geometry, ones=bias is not None), kernel.T)
        return y.reshape(len(x), rows, columns, len(w))
    matrices = as_matrices(w, groups)
    if bias is not None:
        matrices = xp.concatenate([matrices, bias.reshape(groups, 1, len(w) // groups)], axis=1)
    y = xp.empty((len(x), rows, columns, len(w)), xp.result_type(x, w))
    for place, stacks in in_blocks(x, geometry, len(w), ones=bias is not None):
        out = as_stacks(y[place], stacks)
        if stacks.shape[1] > 1:
            xp.matmul(stacks, matrices[:, None], out=out)
        else:  # a stack of a transposed matrix is one that CuPy copies
            for k in range(groups):
                product(stacks[k, 0], matrices[k], out=out[k, 0])
    return y


def correlate_turned(g: Array, w: Array, geometry: Geometry) -> Array:
    """The convolution of a gradient with the kernel turned round, from filters to channels."""
    return correlate(g, rotated_kernel(w, geometry.groups), geometry)


def add_back(g: Array, w: Array, geometry: Geometry, shape: tuple[int, ...]) -> Array:
    """The image gradient, if there are few channels: each pixel is the sum of its share in each window.

    A tap's shares stand apart as its windows do, with zeros around them. So a view has, for each pixel, the
    shares of all windows that saw it: a tap's place in the window is subtracted from the pixel's.
    """
    xp, groups, (_, height, width, channels) = array_module(g), geometry.groups, shape
    (kh, kw), (down, right), (ph, pw), (i, j), *_ = geometry
    (n, rows, columns, filters), few = g.shape, channels // groups
    matrices = w.reshape(groups, filters // groups, few * kh * kw).swapaxes(1, 2)
    top, left = max(i * (kh - 1) - ph, 0), max(j * (kw - 1) - pw, 0)
    bottom, end = top + max(height + ph, rows * down), left + max(width + pw, columns * right)
    d = xp.empty((groups, few, n, height, width), g.dtype)
    bytes_each = kh * kw * channels * bottom * end * g.itemsize
    for images in blocks(n if few else 0, bytes_each, COLUMN_BYTES // 2):  # which the shares need twice
        part = split_groups(g[images], groups)
        m = part.shape[1]
        shares = matrices @ part.reshape(groups, m * rows * columns, filters // groups).swapaxes(1, 2)
        apart = xp.zeros((groups, few, kh, kw, m, bottom, end), g.dtype)
        places = slice(top, top + rows * down, down), slice(left, left + columns * right, right)
        apart[(..., *places)] = shares.reshape(groups, few, kh, kw, m, rows, columns)
        *outer, tap_row, tap_column, image, row, column = apart.strides
        strides = *outer, tap_row - i * row, tap_column - j * column, image, row, column
        pixels = groups, few, kh, kw, m, height, width
        of_pixels = strided_view(apart, (top + ph) * end + left + pw, pixels, strides)
        of_pixels.sum(axis=(2, 3), out=d[:, :, images])
    return xp.ascontiguousarray(d.transpose(2, 3, 4, 0, 1).reshape(n, height, width, channels))


def sum_of_products(a: Array, b: Array) -> Array:
    """The sums of a[k, i].T b[k, i] over i."""
    if len(a) == a.shape[1] == 1:
        return product(a[0, 0].T, b[0, 0])[None]
    return (a.swapaxes(2, 3) @ b).sum(axis=1)


def as_stacks(outputs: Array, stacks: Array) -> Array:
    """Outputs (n, H', W', F) in the order of windows (groups, parts, m, size): a view."""
    groups, parts, m, _ = stacks.shape
    return outputs.reshape(parts, m, groups, outputs.shape[3] // groups).transpose(2, 0, 1, 3)


def in_blocks(
    x: Array, geometry: Geometry, filters: int, ones: bool = False
) -> Iterator[tuple[Place, Array]]:
    """Some images at a time, or rows of one, and their windows as matrices (groups, parts, m, kh kw C).

    With ``ones``, for few channels, each window has a 1 at its end.

    They are good until the next. The padded images and the matrices lie in two buffers, which therefore stay
    in cache; both are stored channel by channel where a window sees few numbers of a row, so that whole rows
    can be copied.
    """
    xp, itemsize, groups = array_module(x), x.itemsize, geometry.groups
    rows, columns = geometry.output(*x.shape[1:3])
    x, (ph, pw) = cut_off(x, geometry.padding)
    x = split_groups(x, groups)
    _, n, h, w, c = x.shape
    few = c < FEW_CHANNELS and (geometry.kernel[1] * c < NARROW or geometry.dilation[1] > 1)
    size, filters = geometry.kernel[0] * geometry.kernel[1] * c, filters // groups
    # The products read the kernel once for each run.
    cache = max(COLUMN_BYTES, groups * size * filters * itemsize)
    runs = blocks(n, groups * rows * columns * size * itemsize, cache)
    if (
        geometry.kernel == geometry.stride == (1, 1) and not ph and not pw and not ones
    ):  # the windows are there already
        for images in runs:
            parts, m = parts_of((images.stop - images.start) * rows * columns, size, filters)
            yield (images, slice(rows)), x[:, images].reshape(groups, parts, m, c)
        return
    n = runs[0].stop if runs else 0  # the first run is the longest
    bands = blocks(rows, n * groups * columns * size * itemsize, cache)
    room = n, h + 2 * ph + geometry.stride[0] - 1, w + 2 * pw
    border = xp.zeros((groups, c, *room) if few else (groups, *room, c), x.dtype)
    padded = border.transpose(0, 2, 3, 4, 1) if few else border
    patches = strided_view(border, 0, *windows(padded, geometry, rows, columns))
    buffer = xp.empty(groups * n * bands[0].stop * columns * (size + ones), x.dtype)
    for images in runs:
        n = images.stop - images.start
        padded[:, :n, ph : ph + h, pw : pw + w] = x[:, images]
        for band in bands:
            part = patches[:, :n, band]
            count = n * (band.stop - band.start) * columns
            parts, m = parts_of(count, size + ones, filters)
            copy = buffer[: groups * count * (size + ones)]
            if not few:
                matrix = copy.reshape(groups, count, size + ones)
                matrix[..., size:] = 1
                copy_windows(part, matrix[..., :size].reshape(part.shape), geometry)
                yield (images, band), matrix.reshape(groups, parts, m, size + ones)
                continue
            part, copy = part.transpose(0, 4, 5, 6, 1, 2, 3), copy.reshape(groups, size + ones, count)
            copy[:, size:] = 1
            taps = copy[:, :size].reshape(part.shape)
            if geometry.kernel[0] > 1 and columns < SHORT_ROW:
                copy_by_columns(border, geometry, band, taps)
            else:
                taps[...] = part
            yield (images, band), copy.reshape(groups, size + ones, parts, m).transpose(0, 2, 3, 1)


def copy_windows(part: Array, out: Array, geometry: Geometry) -> None:
    """Write windows (..., kh, kw, C) into ``out``; on the host what stands in a row is one element."""
    if geometry.dilation[1] == 1 and not on_gpu(part):
        part, out = (pixels(a.reshape(*a.shape[:-2], a.shape[-2] * a.shape[-1])) for a in (part, out))
    out[...] = part


def copy_by_columns(border: Array, geometry: Geometry, band: slice, out: Array) -> None:
    """Write windows of padded images (groups, C, n, H, W) into ``out`` (groups, kh, kw, C, n, rows, columns).

    What a column of the kernel sees is copied first; each of its taps then sees rows one after the other.
    """
    (kh, _), (down, across), _, (dh, dw), *_ = geometry
    groups, _, kw, channels, n, rows, columns = out.shape
    group, channel, image, row, column = border.strides
    lines = strided_view(
        border,
        band.start * down * border.shape[4],
        (groups, kw, channels, down, n, rows + (kh - 1) * dh // down, columns),
        (group, dw * column, channel, row, image, down * row, across * column),
    ).copy()
    for i in range(kh):
        first, phase = divmod(i * dh, down)
        out[:, i] = lines[:, :, :, phase, :, first : first + rows]


def parts_of(rows: int, size: int, filters: int, most: int = SMALL) -> tuple[int, int]:
    """Into how many equal parts to cut the rows, so that each makes a small product; the rows of a part."""
    enough = -(-rows * size * filters // most)
    if enough <= 1:
        return 1, rows
    parts = next((n for n in range(enough, 4 * enough) if rows % n == 0 and rows >= 16 * n), 1)
    return parts, rows // parts


def windows(
    padded: Array, geometry: Geometry, rows: int, columns: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shape and strides of what each window sees of (..., H, W, C), (..., rows, columns, kh, kw, C)."""
    *outer, row, column, channel = padded.strides
    (down, right), (i, j) = geometry.stride, geometry.dilation
    shape = *padded.shape[:-3], rows, columns, *geometry.kernel, padded.shape[-1]
    return shape, (*outer, row * down, column * right, row * i, column * j, channel)


def as_matrices(w: Array, groups: int) -> Array:
    """The kernel as matrices (groups, kh kw C, F / groups), a large one copied along its memory order."""
    w = w.reshape(groups, len(w) // groups, *w.shape[1:])
    size, filters = math.prod(w.shape[2:]), w.shape[1]
    if w.size > LARGE and w.strides[1] > w.strides[2]:
        return w.transpose(0, 1, 3, 4, 2).reshape(groups, filters, size).transpose(0, 2, 1)
    return w.transpose(0, 3, 4, 2, 1).reshape(groups, size, filters)
