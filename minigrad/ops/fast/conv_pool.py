"""Convolution, max pooling and ReLU in one pass, a few images at a time, which stay in cache.

The pixels of a pooling window are its phases: the first phase of an image is every window's first pixel. The
convolution computes one phase after the other, each as one long array, and pooling compares whole arrays.
Where Winograd's algorithms take less time, their values are put in that order.
Bias and ReLU keep the order of numbers, so they can wait for the maxima.
Lecture section: back-propagation. Lesson: 02_backpropagation, by ``fast/__init__.py``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ...bfloat16 import in_bfloat16
from ...device import Array
from ...faster import form_of
from ...integer_settings import Pair, pair
from ...memory_order import nchw, nhwc
from ...op import op
from ...pullback import OpResult, shape_of
from ...sums import axis_sums
from ...tape import once
from ...tensor_base import TensorBase
from ..conv_pool import conv_pool2d, pays
from ..geometry import Geometry
from ..selection import masked, positive_part

if TYPE_CHECKING:
    from ...tensor import Tensor
from . import im2col, kernel_rows, winograd, winograd_rows
from .conv import fastest
from .groups import rotated_kernel
from .images import Place, add_to_pixels, blocks, pixels

WINDOW_BYTES = 1 << 21  # bytes of windows and of their products at a time
KEPT = 1 << 18  # bytes of the windows and of the phases' gradients that are kept for another pullback
MOST_PHASES = NONE = 255  # whose numbers are bytes, and the number where the ReLU lets no gradient through
LEAST = 4096  # numbers before the pooling for which a Sequential takes one pass
FORMS = {"im2col": im2col, "kernel_rows": kernel_rows, "winograd": winograd, "winograd_rows": winograd_rows}


@form_of(pays)
def is_large(x: Any, weight: Any) -> bool:
    """Whether it takes less time as layers of a Sequential: in float32, unless images are small.

    As with Winograd's algorithm: gradients are proved in float64, where layers then round alike whether a
    stage ends between them or not. In 16 bits the layers round before they look for the largest number, and
    would find other ones.
    """
    shape = shape_of(x)
    enough = len(shape) == 4 and shape[0] * math.prod(shape[2:]) * len(weight) >= LEAST
    return enough and weight.dtype == np.float32 and not in_bfloat16.get()


@form_of(conv_pool2d)
def in_one_pass(
    x: Any,
    weight: Any,
    bias: Any = None,
    *,
    pool: Pair,
    relu: bool = False,
    stride: Pair = 1,
    padding: Pair | str = 0,
    dilation: Pair = 1,
    groups: int = 1,
) -> Tensor:
    """One op, where there is a ``fitting_form``."""
    if not stride == dilation == groups == 1 or isinstance(padding, str):
        return NotImplemented
    inputs, tile = (x, weight) if bias is None else (x, weight, bias), pair(pool, "pool", 1)
    form = fitting_form(inputs, pair(padding, "padding", 0), tile)
    if form is None:
        return NotImplemented
    geometry, algorithm = form
    return by_phase(*inputs, geometry=geometry, tile=tile, algorithm=algorithm, relu=relu)


def fitting_form(
    inputs: tuple[Any, ...], padding: tuple[int, int], tile: tuple[int, int]
) -> tuple[Geometry, str] | None:
    """The windows and the algorithm for ``by_phase``, where it takes less time: on NumPy, for float arrays.

    None where an input does not fit; the ops raise an error then.
    """
    x, weight, *bias = arrays = [a.data if isinstance(a, TensorBase) else a for a in inputs]
    if any(type(a) is not np.ndarray or a.dtype != x.dtype for a in arrays) or x.dtype.char not in "fd":
        return None
    geometry = fitting_geometry(x.shape, weight.shape, bias[0].shape if bias else None, padding, tile)
    if geometry is None:
        return None
    algorithm = fastest(x.transpose(0, 2, 3, 1), weight, geometry)
    if algorithm == "winograd" and any(winograd.OUT % side for side in tile):
        return None  # a tile of Winograd's algorithm cuts windows
    return geometry, algorithm


@lru_cache  # a network repeats a few shapes
def fitting_geometry(
    x: tuple[int, ...],
    weight: tuple[int, ...],
    bias: tuple[int, ...] | None,
    padding: tuple[int, int],
    tile: tuple[int, int],
) -> Geometry | None:
    """The windows of a convolution of these shapes; None unless it can be pooled by neighbouring windows."""
    if not len(x) == len(weight) == 4 or 0 in (*x, *weight):
        return None
    if x[1] != weight[1] or bias not in (None, weight[:1]):
        return None
    geometry = Geometry((weight[2], weight[3]), (1, 1), padding, (1, 1))
    if min(tiles_of((x[2], x[3]), geometry, tile)) < 1 or not 1 < math.prod(tile) <= MOST_PHASES:
        return None
    return geometry


@lru_cache  # asked six times for each layer of a network
def tiles_of(image: tuple[int, int], geometry: Geometry, tile: tuple[int, int]) -> tuple[int, int]:
    """How many rows and columns of pooling windows there are."""
    height, width = geometry.output(*image)
    return height // tile[0], width // tile[1]


@op
def by_phase(
    x: Array,
    weight: Array,
    bias: Array | None = None,
    *,
    geometry: Geometry,
    tile: tuple[int, int],
    algorithm: str,
    relu: bool,
) -> OpResult:
    """``conv_pool2d`` in its ``fitting_form``.

    Only the maxima, and the number of the phase that each came from, are stored for backward, and up to KEPT
    bytes of windows. There, the first pullback leaves the second what it computed of the gradient, up to KEPT
    bytes.
    """
    images, filters, (down, across), form = nhwc(x), len(weight), tile, FORMS[algorithm]
    y = np.empty((len(x), *tiles_of(x.shape[2:], geometry, tile), filters), x.dtype)
    winners = np.empty(y.shape, np.uint8)
    windows: list[tuple[Place, Array]] = []
    if form is winograd:
        pool_tiles(images, weight, geometry, tile, y, winners)
    elif form is winograd_rows:
        pool_rows(images, weight, geometry, tile, y, winners)
    elif is_one_block(images.shape, geometry, tile, filters, x.itemsize, min(KEPT, WINDOW_BYTES)):
        windows += in_blocks(images, geometry, tile, filters)
        pool_products(windows, weight, y, winners)
    else:
        pool_products(in_blocks(images, geometry, tile, filters), weight, y, winners)
    for run in blocks(len(y), y[0].nbytes, WINDOW_BYTES):
        if bias is not None:
            add_to_pixels(bias, y[run])
        if relu:
            positive_part(y[run], out=y[run])
            np.maximum(winners[run], (y[run] == 0).view(np.uint8) * np.uint8(NONE), out=winners[run])

    of_outputs = once(nhwc)
    all_shares = once(lambda g: shares(g, winners, down * across))
    few = y.nbytes * down * across <= KEPT

    def shares_at(g: Array, *place: slice) -> Array:
        """The phases' parts of the gradient of some images; few are computed once for both pullbacks."""
        return all_shares(g)[:, *place] if few else shares(g[place], winners[place], down * across)

    def before_pooling(
        g: Array, border: tuple[int, int] = (0, 0), below: int = 0
    ) -> Iterator[tuple[slice, Array]]:
        """Some images at a time, and the gradient of the convolution's value, good until the next.

        It has a ``border`` of zeros, and more of them in the rows ``below``.
        """
        (height, width), (top, left), (_, rows, columns, _) = geometry.output(*x.shape[2:]), border, y.shape
        of_image = height + 2 * top + below, width + 2 * left, filters
        whole = (rows * down, columns * across) == of_image[:2]
        runs = blocks(len(x), math.prod(of_image) * g.itemsize, WINDOW_BYTES)
        buffer = (np.empty if whole else np.zeros)((runs[0].stop, *of_image), g.dtype)  # no run is longer
        image, row, column, channel = buffer.strides
        strides = row, column, image, row * down, column * across, channel
        for run in runs:
            shape = down, across, run.stop - run.start, rows, columns, filters
            phases = np.ndarray(shape, g.dtype, buffer, top * row + left * column, strides)
            phases[...] = shares_at(g, run).reshape(shape)
            yield run, buffer[: shape[2]]

    def to_x(g: Array) -> Array:
        turned, back = rotated_kernel(weight, groups=1), geometry.backward()
        g, border = of_outputs(g), (0, 0)
        if form is winograd:
            d = np.empty(images.shape, g.dtype)
            for run, part in before_pooling(g):
                winograd.correlate(part, turned, back, out=d[run])
            return nchw(d)
        if form is im2col and min(back.padding) >= 0:  # which would copy the gradient to add it
            border, back = back.padding, back._replace(padding=(0, 0))
        d = None
        for run, part in before_pooling(g, border):
            if len(part) == len(x):
                return nchw(form.correlate(part, turned, back))
            d = np.empty(images.shape, g.dtype) if d is None else d
            d[run] = form.correlate(part, turned, back)
        return nchw(d)

    def to_weight(g: Array) -> Array:
        g = of_outputs(g)
        if form in (winograd, winograd_rows):
            rows, _ = geometry.output(*x.shape[2:])
            below = winograd_rows.rows_below(rows, geometry.kernel[0]) if form is winograd_rows else 0
            parts = (
                form.kernel_gradient(images[run], part, weight.shape, geometry)
                for run, part in before_pooling(g, below=below)
            )
            return sum(parts, start=np.zeros(weight.shape, g.dtype))
        products = (
            (stacks.swapaxes(-1, -2) @ shares_at(g, *place).reshape(*stacks.shape[:4], filters)).sum(
                (0, 1, 2)
            )
            for place, stacks in windows or in_blocks(images, geometry, tile, filters)
        )
        d = next(products)
        for product in products:
            d += product
        return d.reshape(*geometry.kernel, x.shape[1], filters).transpose(3, 2, 0, 1)

    if bias is None:
        return nchw(y), (to_x, to_weight)

    def to_bias(g: Array) -> Array:
        g = masked(of_outputs(g), winners != NONE) if relu else of_outputs(g)
        return axis_sums(g.reshape(-1, filters), (0,))

    return nchw(y), (to_x, to_weight, to_bias)


def pool_products(windows: Iterable[tuple[Place, Array]], weight: Array, y: Array, winners: Array) -> None:
    """Write the maxima into y, and the numbers of their phases, by a matrix product for each phase."""
    matrix, products = im2col.as_matrices(weight, 1)[0], np.empty(0, y.dtype)
    for place, stacks in windows:
        shape = *stacks.shape[:4], len(weight)
        products = products if products.shape == shape else np.empty(shape, y.dtype)
        np.matmul(stacks, matrix, out=products)
        maxima(products.reshape(math.prod(shape[:2]), *y[place].shape), y[place], winners[place])


def pool_tiles(
    x: Array, weight: Array, geometry: Geometry, tile: tuple[int, int], y: Array, winners: Array
) -> None:
    """Maxima of windows by Winograd's algorithm, in whose tiles each pixel is an array of its own, too."""
    down, across = tile
    for run, values in winograd.in_tiles(x, weight, geometry):
        phases = [values[i::down, j::across] for i in range(down) for j in range(across)]
        parts = np.empty(phases[0].shape, x.dtype), np.empty(phases[0].shape, np.uint8)
        n, rows, columns = values.shape[2:5]
        shape = n, rows * winograd.OUT // down, columns * winograd.OUT // across, len(weight)
        maxima(phases, *parts)
        for whole, part in zip((y, winners), parts, strict=True):
            part = part.transpose(2, 3, 0, 4, 1, 5).reshape(shape)
            whole[run] = part[:, : y.shape[1], : y.shape[2]]


def pool_rows(
    x: Array, weight: Array, geometry: Geometry, tile: tuple[int, int], y: Array, winners: Array
) -> None:
    """Maxima of windows by Winograd's algorithm down the columns; values are in the order of the phases."""
    (down, across), (_, rows, columns, _) = tile, y.shape
    of_image = down * across * y[0].nbytes
    for run in blocks(len(x), 2 * of_image, WINDOW_BYTES):
        values = winograd_rows.whole_tiles(x[run], weight, geometry)
        phases = np.empty((down, across, *y[run].shape), y.dtype)
        used = values[:, : rows * down, : columns * across]
        shape = len(values), rows, down, columns, across
        pixels(phases)[...] = pixels(used).reshape(shape).transpose(2, 4, 0, 1, 3)
        maxima(phases.reshape(down * across, *y[run].shape), y[run], winners[run])


def maxima(phases: Sequence[Array] | Array, y: Array, winners: Array) -> None:
    """Write the largest of the ``phases`` into y, element by element, and its number into ``winners``.

    It is the first largest, or the last NaN, as in ``max_pool2d``.
    """
    best, later = phases[0], winners.view(bool)
    for number, phase in enumerate(phases[1:], 1):
        if number == 1:
            np.greater(phase, best, out=later)
        else:
            np.maximum(winners, (phase > best).view(np.uint8) * np.uint8(number), out=winners)
        best = np.maximum(best, phase, out=y)
    if np.isnan(y.max()):
        for number, phase in enumerate(phases):
            winners[np.isnan(phase)] = number


def shares(g: Array, winners: Array, phases: int) -> Array:
    """Each phase's part of the gradient g, (phases, *g.shape): all of it where its number won, else 0.

    The bits are multiplied, as in ``masked``.
    """
    of_phases = winners == numbers(phases, g.ndim)
    return (g.view(f"i{g.dtype.itemsize}") * of_phases).view(g.dtype)


@lru_cache
def numbers(count: int, ndim: int) -> np.ndarray:
    """From 0 on, along an axis before ``ndim`` others."""
    return np.arange(count, dtype=np.uint8).reshape(count, *[1] * ndim)


@lru_cache
def runs_and_bands(
    x: tuple[int, ...], geometry: Geometry, tile: tuple[int, int], filters: int, itemsize: int, cache: int
) -> tuple[list[slice], list[slice]]:
    """Images x (N, H, W, C) in runs, and rows of their tiles in bands, whose work areas fit in the cache.

    They are windows and products.
    """
    (kh, kw), (down, across), (n, height, width, channels) = geometry.kernel, tile, x
    rows, columns = tiles_of((height, width), geometry, tile)
    of_tile = across * (kh + down - 1) * kw * channels + down * across * filters
    of_image = rows * columns * of_tile * itemsize
    runs = blocks(n, of_image, cache)
    return runs, blocks(rows, runs[0].stop * of_image // rows, cache)  # the first run is the longest


@lru_cache
def is_one_block(
    x: tuple[int, ...], geometry: Geometry, tile: tuple[int, int], filters: int, itemsize: int, most: int
) -> bool:
    """Whether windows on images x (N, H, W, C) and their products take at most so many bytes."""
    runs, bands = runs_and_bands(x, geometry, tile, filters, itemsize, most)
    return len(runs) == len(bands) == 1


def in_blocks(
    x: Array, geometry: Geometry, tile: tuple[int, int], filters: int
) -> Iterator[tuple[Place, Array]]:
    """Some images at a time, or rows of one's tiles, and their windows, (down, across, k, m, kh kw C).

    The first two axes are the phases, each k matrices of m windows. They are good until the next, and views:
    what the phases of one column see of a tile is copied once.
    """
    (kh, kw), (ph, pw), (down, across), (_, h, w, c) = geometry.kernel, geometry.padding, tile, x.shape
    rows, columns = tiles_of((h, w), geometry, tile)
    runs, bands = runs_and_bands(x.shape, geometry, tile, filters, x.itemsize, WINDOW_BYTES)
    few, tall, size, n = c < im2col.FEW_CHANNELS, kh + down - 1, kh * kw * c, runs[0].stop
    length, room = across * tall * kw * c, (n, h + 2 * ph, w + 2 * pw)
    memory = np.zeros((c, *room) if few else (*room, c), x.dtype)
    padded = memory.transpose(1, 2, 3, 0) if few else memory
    image, row, column, channel = padded.strides
    strides = image, row * down, column * across, column, row, column, channel
    # An array on memory that is there is what as_strided makes, too, and takes five times as long for.
    patches = np.ndarray((n, rows, columns, across, tall, kw, c), x.dtype, memory, 0, strides)
    buffer = np.empty(n * bands[0].stop * columns * length, x.dtype)
    for images in runs:
        n = images.stop - images.start
        padded[:n, ph : ph + h, pw : pw + w] = x[images]
        for band in bands:
            part = patches[:n, band].transpose(3, 4, 5, 6, 0, 1, 2) if few else patches[:n, band]
            copy = buffer[: part.size].reshape(part.shape)
            copy[...] = part
            count = part.size // length
            matrix = copy.reshape(length, count).T if few else copy.reshape(count, length)
            k, m = im2col.parts_of(count, size, filters)
            window, number = matrix.strides
            strides = kw * c * number, tall * kw * c * number, m * window, window, number
            shape = down, across, k, m, size
            yield (images, band), np.ndarray(shape, x.dtype, copy, 0, strides)
