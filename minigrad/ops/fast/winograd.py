"""Winograd's F(4 x 4, 3 x 3): 16 outputs by 36 multiplications instead of 144 (Lavin and Gray 2016).

An output tile of 4 x 4 depends on an image tile of 6 x 6. With the matrices below it is

    output = A.T [ (G kernel G.T) * (B.T tile B) ] A

and the elementwise product in the middle, summed over channels, is one matrix product for each of
the 36 places. Everything is linear in the image and in the kernel, so the gradients have the same form.
Lecture section: back-propagation. Lesson: 02_backpropagation, by ``fast/conv.py``.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...device import Array, array_module
from ..conv import Convolved
from ..geometry import Geometry
from .dilation import smaller
from .groups import rotated_kernel
from .images import blocks, padded_images

OUT, IN = 4, 6  # sides of an output tile and of the image tile it depends on
TILE_BYTES = 600_000  # bytes of transformed tiles made at a time, so that the products find them in cache

BT = np.array(
    [
        [4, 0, -5, 0, 1, 0],
        [0, -4, -4, 1, 1, 0],
        [0, 4, -4, -1, 1, 0],
        [0, -2, -1, 2, 1, 0],
        [0, 2, -1, -2, 1, 0],
        [0, 4, 0, -5, 0, 1],
    ]
)
G = np.array([[6, 0, 0], [-4, -4, -4], [-4, 4, -4], [1, 2, 4], [1, -2, 4], [0, 0, 24]]) / 24
AT = np.array([[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]])


def can_take(w: tuple[int, ...], geometry: Geometry) -> bool:
    """Whether Winograd's algorithm can compute this convolution, possibly after ``space_to_batch``."""
    return geometry.kernel == (3, 3) and geometry.stride == (1, 1)


def pays(x: tuple[int, ...], w: tuple[int, ...], geometry: Geometry) -> bool:
    """Whether it takes less time than im2col: from 32 channels on, where transforms cost less than products.

    A tile, whose edge may be padding, takes the time of about 9 outputs, and the kernel that of 80 (measured
    for 32 to 512 channels and images of 4 x 4 to 32 x 32).
    """
    images, rows, columns = smaller(x[0], *geometry.output(*x[1:3]), geometry.dilation)
    enough = min(w[0] // geometry.groups, w[1]) >= 32
    return enough and 9 * images * tiles_of(rows, columns) + 80 < images * rows * columns


def winograd(x: Array, w: Array, geometry: Geometry) -> Convolved:
    """x (N, H, W, C) and w (F, C, 3, 3) at stride and dilation 1; the value is (N, H', W', F)."""

    def to_image(g: Array) -> Array:
        return correlate(g, rotated_kernel(w, groups=1), geometry.backward())

    return correlate(x, w, geometry), (to_image, lambda g: kernel_gradient(x, g, w.shape, geometry))


def correlate(x: Array, w: Array, geometry: Geometry, out: Array | None = None) -> Array:
    """The value of the convolution, written into ``out`` where that is passed."""
    xp, filters, (rows, columns) = array_module(x), len(w), geometry.output(*x.shape[1:3])
    down, across = -(-rows // OUT), -(-columns // OUT)
    whole = len(x), down * OUT, across * OUT, filters
    y = out if out is not None and out.shape == whole else xp.empty(whole, xp.result_type(x, w))
    for images, values in in_tiles(x, w, geometry):
        in_images = y[images].reshape(-1, down, OUT, across, OUT, filters)
        in_images.transpose(2, 4, 0, 1, 3, 5)[...] = values
    if y is out:
        return y
    y = y[:, :rows, :columns]
    if out is None:
        return xp.ascontiguousarray(y)
    out[...] = y
    return out


def in_tiles(x: Array, w: Array, geometry: Geometry) -> Iterator[tuple[slice, Array]]:
    """Some images at a time, and their value in tiles, (4, 4, n, down, across, F).

    The last row and column of tiles may stand out of the images.
    """
    rows, columns = geometry.output(*x.shape[1:3])
    down, across, filters = -(-rows // OUT), -(-columns // OUT), len(w)
    kernel = sandwich(G, w.transpose(2, 3, 1, 0)).reshape(IN * IN, -1, filters)
    for images in image_blocks((len(x), rows, columns, filters), x.shape[3], x.itemsize):
        products = image_tiles(x[images], geometry) @ kernel
        values = sandwich(AT, products.reshape(IN, IN, -1))
        yield images, values.reshape(OUT, OUT, -1, down, across, filters)


def kernel_gradient(x: Array, g: Array, shape: tuple[int, ...], geometry: Geometry) -> Array:
    """The pullback to the kernel, whose ``shape`` is (F, C, 3, 3)."""
    xp, (_, rows, columns, _), (filters, channels, *kernel) = array_module(g), g.shape, shape
    d = xp.zeros((IN * IN, channels, filters), g.dtype)
    for images in image_blocks(g.shape, channels, g.itemsize):
        image = image_tiles(x[images], geometry)
        gradient = sandwich(AT.T, tiles(g[images], OUT, (rows, columns))).reshape(IN * IN, -1, filters)
        d += image.transpose(0, 2, 1) @ gradient
    return sandwich(G.T, d.reshape(IN, IN, -1)).reshape(*kernel, channels, filters).transpose(3, 2, 0, 1)


def image_tiles(x: Array, geometry: Geometry) -> Array:
    """The overlapping tiles of 6 x 6, transformed: (36, tiles, C)."""
    image = tiles(padded_images(x, geometry.padding), IN, geometry.output(*x.shape[1:3]))
    return sandwich(BT, image).reshape(IN * IN, -1, x.shape[3])


def tiles(x: Array, side: int, output: tuple[int, int]) -> Array:
    """Tiles of ``side`` x ``side``, one every 4 rows and columns: (side, side, N, down, across, C).

    A view; where the images end before the last tile, zeros are put in first.
    """
    xp, (n, height, width, channels) = array_module(x), x.shape
    down, across = (-(-size // OUT) for size in output)
    need = (down - 1) * OUT + side, (across - 1) * OUT + side
    if need != (height, width):
        filled = xp.zeros((n, *need, channels), x.dtype)
        filled[:, :height, :width] = x
        x = filled
    image, row, column, channel = x.strides
    strides = (row, column, image, row * OUT, column * OUT, channel)
    return xp.lib.stride_tricks.as_strided(x, (side, side, n, down, across, channels), strides)


def sandwich(m: np.ndarray, x: Array) -> Array:
    """m x m.T over the first two axes of x (r, r, ...): (m's rows, m's rows, everything else)."""
    m, side = array_module(x).asarray(m, x.dtype), len(x)
    half = (m @ x.reshape(side, -1)).reshape(len(m), side, -1)
    return m @ half


def image_blocks(shape: tuple[int, ...], channels: int, itemsize: int) -> list[slice]:
    """Runs of images whose transformed tiles fit in cache; ``shape`` is that of the value."""
    n, rows, columns, filters = shape
    area = tiles_of(rows, columns) * IN * IN
    kernel = IN * IN * channels * filters * itemsize  # which the products read once for each run
    return blocks(n, area * max(channels, filters) * itemsize, max(TILE_BYTES, kernel))


def tiles_of(rows: int, columns: int) -> int:
    """The number of tiles of an image of so many rows and columns of outputs."""
    return -(-rows // OUT) * -(-columns // OUT)
