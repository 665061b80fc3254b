"""Sums of columns and rows on the host, as products of matrices that keep the digits of a pairwise sum.

NumPy adds the rows of a matrix one after the other, and so does BLAS: of 32,768 positive numbers in float32
the last two of seven digits are wrong. Here a chain has at most 64 additions, and the sums of chains are
added in pairs: n numbers are off by (64 + log2 n) / 2 eps of their absolute sum at most, and mostly by one or
two. NumPy's sum along contiguous rows, which is pairwise, is as exact and takes four times as long.
Lecture section: back-propagation. Lesson: 02_backpropagation, by ``ops/batch_norm.py``.
"""

from __future__ import annotations

import math
from functools import cache, lru_cache
from typing import Any

import numpy as np

BY_PRODUCT = "fd"  # float32 and float64, which BLAS multiplies
CHAIN = 32  # rows that are added one after the other, at most
PIECE = 512  # elements of a row; einsum adds 64 bytes at a time, so in 8 or 16 chains
SMALL = 1 << 13  # elements that NumPy's own sum adds in about the same time
LONG = 1 << 10  # terms that NumPy may add one after the other, where another way would take longer
TALL = 1 << 10  # rows that one block of a GPU's threads may add up


def column_sums(x: np.ndarray) -> np.ndarray:
    """``x.sum(axis=0)`` of a matrix (N, C), in its dtype, as products of ones and blocks of rows.

    ``together`` rows are taken as one long row, so a chain adds every ``together``-th row.
    """
    if x.dtype.char not in BY_PRODUCT:
        return x.sum(axis=0, dtype=x.dtype)
    n = len(x)
    if n <= CHAIN:
        return ones(n, x.dtype).dot(x)
    if x.flags.f_contiguous and not x.flags.c_contiguous:
        return row_sums(x.T)
    chain = largest_divisor(n, CHAIN, CHAIN // 2) or CHAIN
    together, rest = divmod(n, chain)
    blocks = x[: n - rest] if rest else x
    total = ones(chain, x.dtype).dot(blocks.reshape(chain, blocks.size // chain))
    total = total.reshape(together, x.shape[1])
    total = ones(together, x.dtype).dot(total) if together <= CHAIN else halved(total)
    return total + ones(rest, x.dtype).dot(x[n - rest :]) if rest else total


def row_sums(x: np.ndarray) -> np.ndarray:
    """``x.sum(axis=1)`` of a matrix (N, C) of float32 or float64.

    Long rows are added by pieces, and these by one product, or in pairs if they are many.
    """
    x = np.ascontiguousarray(x)
    n, size = x.shape
    if size * x.itemsize <= 64 * 64:
        return np.einsum("nc->n", x)
    piece = largest_divisor(size, PIECE, PIECE // 2) or PIECE // 4
    pieces, rest = divmod(size, piece)
    totals = np.einsum("npc->np", x[:, : size - rest].reshape(n, pieces, piece))
    total = totals @ ones(pieces, totals.dtype) if pieces <= 2 * CHAIN else halved(totals.T)
    return total + np.einsum("nc->n", x[:, size - rest :]) if rest else total


@lru_cache(maxsize=64)
def ones(n: int, dtype: np.dtype) -> np.ndarray:
    """A vector of ones, which all callers share: of few rows, to make it takes as long as the product."""
    vector = np.ones(n, dtype)
    vector.flags.writeable = False
    return vector


@cache
def largest_divisor(n: int, most: int, least: int = 1) -> int:
    """The largest divisor of n from ``least`` to ``most``, or 0 where none is there."""
    return next((divisor for divisor in range(most, least - 1, -1) if n % divisor == 0), 0)


def halved(x: np.ndarray) -> np.ndarray:
    """The sum of the rows of x, in pairs down to eight rows, which one product adds."""
    while len(x) > 8:
        half = len(x) // 2
        pairs = x[:half] + x[half : 2 * half]
        if len(x) % 2:
            pairs[0] += x[-1]
        x = pairs
    if len(x) < 2:
        return x[0]
    total = ones(len(x), x.dtype) @ (x if x.ndim == 2 else x.reshape(len(x), x[0].size))
    return total if x.ndim == 2 else total.reshape(x.shape[1:])


def axis_sums(x: Any, axes: tuple[int, ...]) -> Any:
    """``x.sum(axis=axes)``, of an array as it lies in memory as sums of columns and of rows.

    No chain is longer than ``LONG``, but in arrays of less than ``SMALL`` elements. Integers of the host have
    their own sum, and float16 is added up as float32 and rounded once.
    """
    on_host, char = type(x) is np.ndarray, x.dtype.char
    if char == "e":
        with np.errstate(over="ignore"):
            return axis_sums(x.astype(np.float32), axes).astype(np.float16)
    if not on_host or char not in BY_PRODUCT:
        return x.sum(axis=axes) if on_host else sums_on_gpu(x, axes)
    if x.ndim == 2 and axes == (0,) and (x.size < SMALL or len(x) <= 2 * CHAIN):
        return ones(len(x), x.dtype).dot(x)  # one call, as of a bias's gradient
    if x.ndim == 2 and axes == (0,) and x.flags.c_contiguous:
        return column_sums(x)
    if x.size < SMALL:
        return x.sum(axis=axes)
    order = sorted(range(x.ndim), key=lambda axis: -x.strides[axis])
    y, rest = x.transpose(order), [axis for axis in order if axis not in axes]
    columns = math.prod(x.shape[axis] for axis in rest)
    if not y.flags.c_contiguous:
        if x.size <= LONG * columns:
            return x.sum(axis=axes)
        if 0 in x.strides:  # a copy may need more memory than there is
            return x.sum(axis=axes, dtype=np.float64).astype(x.dtype)
        y = np.ascontiguousarray(y)
    sums = sums_over(y, [axis in axes for axis in order])
    return sums.reshape([x.shape[axis] for axis in rest]).transpose(
        [rest.index(axis) for axis in sorted(rest)]
    )


def sums_on_gpu(x: Any, axes: tuple[int, ...]) -> Any:
    """``x.sum(axis=axes)`` on a GPU, of a tall matrix in two stages: some rows at a time, then their sums.

    CuPy's sum over leading axes gives each block of threads 32 columns: one block would add up all rows of
    the gradient of a bias, while a GPU has room for hundreds.
    """
    # An axis of length 1 may be anywhere: it goes to the axes that are summed, or to those that stay.
    ends = [math.inf if axis in axes else -math.inf for axis in range(x.ndim)]
    strides = [end if n == 1 else stride for end, n, stride in zip(ends, x.shape, x.strides, strict=True)]
    order = sorted(range(x.ndim), key=lambda axis: -strides[axis])
    y, rest = x.transpose(order), sorted(order[len(axes) :])
    rows = math.prod(y.shape[: len(axes)])
    if rows <= TALL or not rest or set(rest) & set(axes) or not y.flags.c_contiguous:
        return x.sum(axis=axes)
    root = math.isqrt(rows)
    parts = largest_divisor(rows, 2 * root, root // 2) or root
    matrix, covered = y.reshape(rows, x.size // rows), rows // parts * parts
    sums = matrix[:covered].reshape(parts, rows // parts, x.size // rows).sum(axis=1).sum(axis=0)
    if covered < rows:
        sums += matrix[covered:].sum(axis=0)
    memory_order = order[len(axes) :]
    return sums.reshape(y.shape[len(axes) :]).transpose([memory_order.index(axis) for axis in rest])


def sums_over(x: np.ndarray, reduced: list[bool]) -> np.ndarray:
    """The sums of a contiguous array over its ``reduced`` axes: the last ones as rows, the first as columns.

    What lies between axes that stay is summed for one index before it at a time, if these are long.
    """
    rest = [n for n, gone in zip(x.shape, reduced, strict=True) if not gone]
    before = reduced.index(False) if rest else 0
    behind = reduced[::-1].index(False) if rest else x.ndim
    if behind:
        shape = x.shape[: x.ndim - behind]
        return sums_over(row_sums(x.reshape(math.prod(shape), -1)).reshape(shape), reduced[: len(shape)])
    if before:
        shape = x.shape[before:]
        return sums_over(column_sums(x.reshape(-1, math.prod(shape))).reshape(shape), reduced[before:])
    if True not in reduced:
        return x
    if x.size > LONG * math.prod(rest):
        outer = reduced.index(True)
        parts = x.reshape(-1, *x.shape[outer:])
        return np.stack([sums_over(part, reduced[outer:]) for part in parts]).reshape(rest)
    return x.sum(axis=tuple(i for i, gone in enumerate(reduced) if gone))
