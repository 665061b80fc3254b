"""Convolution, max pooling and ReLU in one pass, a few images at a time, which stay in cache.

The pixels of a pooling window are its phases: the first phase of an image is every window's first pixel. The
convolution computes one phase after the other, as a product with a long array for its value, and pooling
compares whole arrays. Bias and ReLU keep the order of numbers, so they can wait for the maxima.
Lecture section: back-propagation. Lesson: 02_backpropagation, by ``conv.py``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..device import Array
from ..op import OpResult, op
from ..tape import once
from ..tensor import Tensor
from . import elementwise, im2col, kernel_rows
from .conv import conv2d, fastest
from .geometry import Geometry, Pair, Place, are_integers, blocks, nchw, nhwc
from .pool import max_pool2d
from .product import product

CACHE = 3 << 20  # bytes of windows and of their products at a time
NONE: tuple[Any, ...] = (1, (1, 1))  # settings that leave stride, dilation and groups out
MOST_PHASES = 255  # whose numbers are bytes


def conv_pool2d(
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
    """``conv2d`` of x (N, C, H, W), then ``max_pool2d`` with windows of ``pool`` side by side; (N, F, H', W').

    With ``relu`` follows max(y, 0); it gives the same before the pooling. Takes less time and memory than the
    ops one by one where ``fits`` says so, and is them elsewhere. Values that only the rounding of the bias
    makes equal are no tie here: the gradient goes to the larger one. Raises ValueError as ``conv2d`` does.
    """
    inputs = (x, weight) if bias is None else (x, weight, bias)
    settings = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    if fits(inputs, pool, settings):
        return by_phase(*inputs, pool=pool, padding=padding, relu=relu)
    y = max_pool2d(conv2d(*inputs, **settings), kernel=pool)
    return elementwise.relu(y) if relu else y


def fits(inputs: tuple[Any, ...], pool: Pair, settings: dict[str, Any]) -> bool:
    """Whether ``by_phase`` computes it, and in less time: float NumPy arrays without stride and groups.

    Winograd's algorithm, where it pays, saves more.
    """
    arrays = [x.data if isinstance(x, Tensor) else x for x in inputs]
    padding, dtype = settings["padding"], getattr(arrays[0], "dtype", None)
    if any(type(a) is not np.ndarray or a.dtype != dtype or not a.size for a in arrays):
        return False
    x, weight, *bias = arrays
    if dtype.char not in "fd" or x.ndim != 4 or weight.ndim != 4 or x.shape[1] != weight.shape[1]:
        return False
    if any(b.shape != weight.shape[:1] for b in bias):
        return False
    if not (settings["stride"] in NONE and settings["dilation"] in NONE and settings["groups"] == 1):
        return False
    if not (is_pair(padding, 0) and is_pair(pool, 1)):
        return False
    geometry, tile = geometry_of(weight, padding), both(pool)
    rows, columns = tiles_of(x.shape[2:], geometry, tile)
    if min(rows, columns) < 1 or not 1 < math.prod(tile) <= MOST_PHASES:
        return False
    return fastest(x, weight, geometry) != "winograd"


def is_pair(value: Any, least: int) -> bool:
    return type(value) is int and value >= least or are_integers(value, 2, least)


def both(value: Any) -> tuple[int, int]:
    """A setting for rows and columns, given as one number or two."""
    return (value, value) if type(value) is int else (int(value[0]), int(value[1]))


def geometry_of(weight: Array, padding: Any) -> Geometry:
    return Geometry(weight.shape[2:], (1, 1), both(padding), (1, 1))


def tiles_of(image: tuple[int, int], geometry: Geometry, tile: tuple[int, int]) -> tuple[int, int]:
    """The rows and columns of pooling windows."""
    (height, width), (down, across) = geometry.output(*image), tile
    return height // down, width // across


@op
def by_phase(
    x: Array, weight: Array, bias: Array | None = None, *, pool: Pair, padding: Pair, relu: bool
) -> OpResult:
    """``conv_pool2d`` where it ``fits``.

    Only the maxima, and the number of the phase that each came from, are stored for backward.
    """
    geometry, tile, images, filters = geometry_of(weight, padding), both(pool), nhwc(x), len(weight)
    rows, columns = tiles_of(x.shape[2:], geometry, tile)
    matrix = im2col.as_matrix(weight)
    y = np.empty((len(x), rows, columns, filters), x.dtype)
    winners = np.empty(y.shape, np.uint8)
    phases = np.empty((0, 0), x.dtype)
    for place, stacks in in_groups(images, geometry, tile, filters):
        out = y[place]
        if phases.shape != (len(stacks), out.size):
            phases = np.empty((len(stacks), out.size), x.dtype)
        for stack, phase in zip(stacks, phases, strict=True):
            stack_product(stack, matrix, phase.reshape(*stack.shape[:2], filters))
        maxima(phases, out.reshape(-1), winners[place].reshape(-1))
        lines = out.reshape(len(out), out[0].size)  # many channels at a time, as in ``conv2d``
        if bias is not None:
            lines += np.tile(bias, lines.shape[1] // filters)
        if relu:
            np.maximum(lines, np.zeros_like(lines[:1]), out=lines)

    masked = once(lambda g: elementwise.masked(nhwc(g), y != 0) if relu else nhwc(g))

    def to_x(g: Array) -> Array:
        g, back = masked(g), geometry.backward()
        turned = weight[:, :, ::-1, ::-1].transpose(1, 0, 2, 3)
        algorithm = {"im2col": im2col, "kernel_rows": kernel_rows}[fastest(x, weight, geometry)]
        d, (height, width), (down, across) = np.empty(images.shape, g.dtype), geometry.output(*x.shape[2:]), tile
        whole = (rows * down, columns * across) == (height, width)
        for run in blocks(len(x), height * width * filters * g.itemsize, CACHE):
            before = (np.empty if whole else np.zeros)((len(g[run]), height, width, filters), g.dtype)
            tiles = before[:, : rows * down, : columns * across]
            for number, share in enumerate(shares(g[run], winners[run], down * across)):
                tiles[:, number // across :: down, number % across :: across] = share
            d[run] = algorithm.correlate(before, turned, back)
        return nchw(d)

    def to_weight(g: Array) -> Array:
        g, d = masked(g), np.zeros(matrix.shape, g.dtype)
        for place, stacks in in_groups(images, geometry, tile, filters):
            of_phases = shares(g[place], winners[place], len(stacks))
            for stack, share in zip(stacks, of_phases, strict=True):
                d += im2col.stack_products(stack, share.reshape(*stack.shape[:2], filters))
        return d.reshape(*geometry.kernel, x.shape[1], filters).transpose(3, 2, 0, 1)

    if bias is None:
        return nchw(y), (to_x, to_weight)
    return nchw(y), (to_x, to_weight, lambda g: masked(g).reshape(y.size // filters, filters))


def stack_product(stack: Array, matrix: Array, out: Array) -> None:
    if len(stack) == 1:
        product(stack[0], matrix, out[0])
    else:
        np.matmul(stack, matrix, out=out)


def maxima(phases: Array, y: Array, winners: Array) -> None:
    """Write the largest element of each column of ``phases`` into y, and its row into ``winners``.

    It is the first largest, or the last NaN, as in ``max_pool2d``.
    """
    best, numbers = phases[0], winners.view(bool)
    for number, phase in enumerate(phases[1:], 1):
        larger = phase > best
        if number == 1:
            numbers[...] = larger
        else:
            np.maximum(winners, larger.view(np.uint8) * np.uint8(number), out=winners)
        best = np.maximum(best, phase, out=y)
    if np.isnan(y.max()):
        for number, phase in enumerate(phases):
            winners[np.isnan(phase)] = number


def shares(g: Array, winners: Array, phases: int) -> Iterator[Array]:
    """Each phase's part of the gradient g: all of it where its number won, else 0.

    The bits are multiplied, as in ``elementwise.masked``.
    """
    bits = g.view(f"i{g.dtype.itemsize}")
    for number in range(phases):
        yield (bits * (winners == number)).view(g.dtype)


def in_groups(
    x: Array, geometry: Geometry, tile: tuple[int, int], filters: int
) -> Iterator[tuple[Place, list[Array]]]:
    """Some images at a time, or rows of one's tiles, and each phase's windows, as ``im2col.in_blocks`` has them.

    The windows of the phases below one another are copied as one: of kh + down - 1 rows each sees kh.
    """
    (kh, kw), (ph, pw), (down, across), (n, h, w, c) = geometry.kernel, geometry.padding, tile, x.shape
    rows, columns = tiles_of((h, w), geometry, tile)
    few, tall = c < im2col.FEW_CHANNELS, kh + down - 1
    size, seen = tall * kw * c, kh * kw * c
    bytes_each = rows * columns * across * (size + down * filters) * x.itemsize
    runs = blocks(n, bytes_each, CACHE)
    n = runs[0].stop  # the first run is the longest
    bands = blocks(rows, n * bytes_each // rows, CACHE)
    room = n, h + 2 * ph, w + 2 * pw
    padded = np.zeros((c, *room), x.dtype).transpose(1, 2, 3, 0) if few else np.zeros((*room, c), x.dtype)
    image, row, column, channel = padded.strides
    strides = image, row * down, column * across, row, column, channel
    patches = [
        np.lib.stride_tricks.as_strided(padded[:, :, j:], (n, rows, columns, tall, kw, c), strides)
        for j in range(across)
    ]
    buffer = np.empty((across, n * bands[0].stop * columns * size), x.dtype)
    for images in runs:
        n = images.stop - images.start
        padded[:n, ph : ph + h, pw : pw + w] = x[images]
        for band in bands:
            count, matrices = n * (band.stop - band.start) * columns, []
            for patch, room in zip(patches, buffer, strict=True):
                part = patch[:n, band].transpose(3, 4, 5, 0, 1, 2) if few else patch[:n, band]
                copy = room[: part.size].reshape(part.shape)
                copy[...] = part
                matrices.append(copy.reshape(size, count).T if few else copy.reshape(count, size))
            starts = [i * kw * c for i in range(down)]
            views = [matrix[:, start : start + seen] for start in starts for matrix in matrices]
            products = im2col.n_products(views[0], filters)
            yield (images, band), [view.reshape(products, count // products, seen) for view in views]
