"""Sums of columns, and functions of each element, of matrices on a GPU: the kernels of ``columns.cu``.

Lecture section: GPU against CPU. Lesson: 04_gpu.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from ...device import Array, array_module
from .cuda_kernels import BLOCKS, ceil, int32, kernel

WIDTH, LANES = 32, 16  # a block's columns, and its threads for each of them
FEW = 512  # rows of which one block sums up a column; of more several, whose sums a second kernel adds
Optional = Array | int
"""An array, or 0 where there is none."""


@lru_cache(256)
def split(rows: int, columns: int, few: int = FEW) -> tuple[tuple[int, int], int]:
    """The grid of blocks for a matrix, and the rows of each of its parts; a matrix of ``few`` rows is one."""
    across = ceil(columns, WIDTH)
    parts = 1 if rows <= few else max(min(BLOCKS // across, rows // (4 * LANES)), 1)
    each = ceil(rows, parts)
    return (across, ceil(rows, each)), each


def launch(name: str, grid: tuple[int, ...], like: Array, *arguments: Any) -> None:
    """Call the kernel ``name`` for numbers of the dtype of ``like``."""
    function = kernel("columns.cu", name, like.dtype.char, WIDTH=WIDTH, LANES=LANES)
    function(grid, (WIDTH * LANES,), arguments)


def parts_of(like: Array, grid: tuple[int, int]) -> Optional:
    """Where the blocks of ``grid`` leave two sums for each column; 0 if they need no second kernel."""
    shape = grid[1], 2, like.shape[1]
    return array_module(like).empty(shape, np.float64) if grid[1] > 1 else 0


def gradient_sums(
    g: Array,
    after_relu: Optional = 0,
    x: Optional = 0,
    mean: Optional = 0,
    scale: Optional = 0,
    d: Optional = 0,
    by_row: bool = False,
) -> tuple[Array, Array]:
    """The sums of each column of g (rows, columns), and of its products with the normalized x.

    g is as before the ReLU, and is written so into ``d``. Mean and scale are those of columns, or ``by_row``
    of rows. Without x the second result is undefined.
    """
    xp, (rows, columns) = array_module(g), g.shape
    grid, each = split(rows, columns)
    parts, total, along = parts_of(g, grid), xp.empty(columns, g.dtype), xp.empty(columns, g.dtype)
    arrays = g, after_relu, x, mean, scale, d, parts, total, 0 if isinstance(x, int) else along
    launch("gradient_sums", grid, g, *arrays, *int32(rows, columns, each, by_row))
    if grid[1] > 1:
        launch("add_parts", grid[:1], g, *arrays[-3:], *int32(grid[1], columns))
    return total, along


def moments(x: Array) -> tuple[Array, Array]:
    """The mean and the variance of each column of x (rows, columns)."""
    xp, (rows, columns) = array_module(x), x.shape
    grid, each = split(rows, columns)
    parts, mean, variance = parts_of(x, grid), xp.empty(columns, x.dtype), xp.empty(columns, x.dtype)
    launch("moments", grid, x, x, parts, mean, variance, *int32(rows, columns, each))
    if grid[1] > 1:
        launch("merge_moments", grid[:1], x, parts, mean, variance, *int32(grid[1], rows, columns, each))
    return mean, variance


def normalize(
    x: Array, mean: Array, variance: Array, weight: Array, bias: Array, eps: float, relu: bool
) -> tuple[Array, Array]:
    """(x - mean) scale weight + bias, or with ``relu`` what is positive of it, and the columns' scale."""
    xp, (rows, columns) = array_module(x), x.shape
    grid, each = split(rows, columns, few=0)
    y, scale = xp.empty(x.shape, x.dtype), xp.empty(columns, x.dtype)
    arrays = x, mean, variance, weight, bias, y, scale
    launch("normalize", grid, x, *arrays, np.float64(eps), *int32(rows, columns, each, relu))
    return y, scale


def normalize_gradient(
    g: Array, after_relu: Optional, x: Array, mean: Array, scale: Array, weight: Array, *sums: Optional
) -> Array:
    """The gradient of x, whose mean and variance move by ``sums``, or are constant where these are 0."""
    grid, each = split(*x.shape, few=0)
    d = array_module(x).empty(x.shape, x.dtype)
    arrays = g, after_relu, x, mean, scale, weight, *sums, d
    launch("normalize_gradient", grid, x, *arrays, *int32(*x.shape, each))
    return d


def add_bias(y: Array, bias: Optional, relu: bool) -> None:
    """Add ``bias`` to each row of y (rows, columns), in place, with ``relu`` keep what is positive."""
    grid = (ceil(y.size, WIDTH * LANES),)
    launch("add_bias", grid, y, y, bias, *int32(*y.shape, relu))
