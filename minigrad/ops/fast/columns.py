"""Matrices on a GPU by their columns: the kernels of ``columns.cu``.

Lecture section: GPU against CPU. Lesson: 04_gpu.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from ...device import Array, array_module
from . import cuda_kernels
from .cuda_kernels import BLOCKS, ceil

WIDTH, LANES = 32, 16  # a block's columns, and its threads for each of them
FEW = 512  # rows of which one block sums up a column; of more several, whose sums a second kernel adds


@lru_cache(256)
def split(rows: int, columns: int, few: int) -> tuple[tuple[int, int], int]:
    """The grid of blocks for a matrix, and the rows of each of its parts; a matrix of ``few`` rows is one."""
    across = ceil(columns, WIDTH)
    parts = 1 if rows <= few else max(min(BLOCKS // across, rows // (4 * LANES)), 1)
    each = ceil(rows, parts)
    return (across, ceil(rows, each)), each


def launch(name: str, grid: tuple[int, ...], dtype: Any, *arguments: Any) -> None:
    block = {"WIDTH": WIDTH, "LANES": LANES}
    cuda_kernels.launch("columns.cu", name, grid, WIDTH * LANES, *arguments, dtype=dtype, **block)


def sums(name: str, merge: str, arrays: tuple[Array | None, ...], *settings: int) -> tuple[Array, Array]:
    """Two numbers for each column of the first array, which is (rows, columns), by the kernel ``name``.

    Where each column is given to several blocks, the kernel ``merge`` computes them from those of the blocks.
    """
    x: Array = arrays[0]
    xp, (rows, columns), dtype = array_module(x), x.shape, x.dtype
    grid, each = split(rows, columns, FEW)
    parts = xp.empty((grid[1], 2, columns), np.float64) if grid[1] > 1 else None
    results, sizes = (xp.empty(columns, dtype), xp.empty(columns, dtype)), (rows, columns, each)
    launch(name, grid, dtype, *arrays, parts, *results, *sizes, *settings)
    if parts is not None:
        launch(merge, grid[:1], dtype, parts, *results, grid[1], *sizes)
    return results


def gradient_sums(
    g: Array,
    after_relu: Array | None = None,
    normal: tuple[Array | None, ...] = (None, None, None),
    d: Array | None = None,
    by_row: bool = False,
) -> tuple[Array, Array]:
    """The sums of each column of g (rows, columns), and of its products with the normalized x.

    g is as before the ReLU, and is written so into ``d``. ``normal`` is x, and mean and scale of its columns,
    or ``by_row`` of its rows; without it the second result is 0.
    """
    return sums("gradient_sums", "add_parts", (g, after_relu, *normal, d), by_row)


def each_element(name: str, *arrays: Array | None, settings: tuple[float, ...] = ()) -> None:
    """Call the kernel ``name`` for each element of the first array, which is (rows, columns)."""
    x: Array = arrays[0]
    grid, each = split(*x.shape, 0)
    launch(name, grid, x.dtype, *arrays, *x.shape, each, *settings)
