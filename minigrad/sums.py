"""Sums of columns and rows on the host, as products of matrices that keep the digits of a pairwise sum.

NumPy adds the rows of a matrix one after the other, and so does BLAS: of 32,768 positive numbers in float32
the last two of seven digits are wrong. Here a chain has at most 64 additions, and the sums of chains are
added in pairs: n numbers are off by (64 + log2 n) / 2 eps of their absolute sum at most, and mostly by one or
two. NumPy's sum along contiguous rows, which is pairwise, is as exact and takes four times as long.
Lecture section: back-propagation. Lesson: 02_backpropagation, by ``ops/batch_norm.py``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any

import numpy as np

CHAIN = 32  # rows that are added one after the other, at most
PIECE = 128  # elements of a row, at most; of a matrix and a vector BLAS adds them in 4 or more chains
LONG_PIECE = 512  # of two vectors in 16 or more
WIDE = 2048  # elements of rows that are taken as one; so many sums of products stay in the fastest cache
IN_CACHE = 1 << 16  # elements of products that are written faster than they are added on the way
SMALL = 1 << 13  # elements that NumPy's own sum adds in about the same time


def column_sums(x: np.ndarray) -> np.ndarray:
    """``x.sum(axis=0)`` of a matrix (N, C), in its dtype."""
    if not has_product(x):
        return x.sum(axis=0, dtype=x.dtype)
    n = len(x)
    if n <= CHAIN:
        return ones(n, x.dtype).dot(x)
    if lies_in_columns(x):
        return row_sums(x.T)
    chain = largest_divisor(n, CHAIN, CHAIN // 2) or CHAIN
    if n % chain == 0 and n <= CHAIN * chain:  # as below in two calls: 5 us, not 7, of 128 x 512
        chains = ones(chain, x.dtype).dot(x.reshape(chain, x.size // chain))
        return ones(n // chain, x.dtype).dot(chains.reshape(n // chain, x.shape[1]))
    return sums_of_chains(lambda x: ones(x.shape[1], x.dtype) @ x, len(x), x)


def column_dots(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """``(x * y).sum(axis=0)`` of two matrices (N, C)."""
    if not has_product(x, y) or x.size <= IN_CACHE:
        return column_sums(x * y)
    if lies_in_columns(x) and lies_in_columns(y):
        return row_dots(x.T, y.T)
    return sums_of_chains(lambda x, y: np.einsum("bnc,bnc->bc", x, y), WIDE // max(x.shape[1], 1), x, y)


def row_sums(x: np.ndarray) -> np.ndarray:
    """``x.sum(axis=1)`` of a matrix (N, C), in its dtype."""
    if not has_product(x):
        return x.sum(axis=1, dtype=x.dtype)
    if lies_in_columns(x):
        return column_sums(x.T)
    return sums_of_pieces(sums_of_short_rows, PIECE, x)


def row_dots(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """``(x * y).sum(axis=1)`` of two matrices (N, C)."""
    if not has_product(x, y):
        return row_sums(x * y)
    if lies_in_columns(x) and lies_in_columns(y):
        return column_dots(x.T, y.T)
    return sums_of_pieces(dots, LONG_PIECE, x, y)


def sums_of_short_rows(x: np.ndarray) -> np.ndarray:
    """A product of a matrix and a vector, or of vectors, whose chains are shorter and which takes longer."""
    if x.shape[-1] > PIECE:
        return dots(x, np.ones_like(x[:1]))
    return x @ ones(x.shape[-1], x.dtype)


def sums_by_einsum(x: np.ndarray) -> np.ndarray:
    """The sums along the last axis, which einsum takes 64 bytes at a time, so in 8 or 16 chains."""
    return np.einsum("...c->...", x)


def dots(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Products of vectors, which BLAS adds in many chains; it may take one for a matrix and a vector."""
    return np.matmul(x[..., None, :], y[..., None])[..., 0, 0]


@lru_cache(maxsize=64)
def ones(n: int, dtype: np.dtype) -> np.ndarray:
    """A vector of ones, which all callers share: of few rows, to make it takes as long as the product."""
    vector = np.ones(n, dtype)
    vector.flags.writeable = False
    return vector


def has_product(x: np.ndarray, y: np.ndarray | None = None) -> bool:
    """Whether BLAS multiplies them: both are float32, or both float64."""
    return x.dtype.char in "fd" and (y is None or y.dtype == x.dtype)


def lies_in_columns(x: np.ndarray) -> bool:
    """Whether a matrix lies in Fortran order and in no other."""
    return x.flags.f_contiguous and not x.flags.c_contiguous


def sums_of_chains(sums: Callable[..., np.ndarray], most: int, *arrays: np.ndarray) -> np.ndarray:
    """The sums of the columns of matrices (N, C), where ``sums`` makes those of blocks (B, CHAIN, C).

    Up to ``most`` rows of C numbers are taken as one long row, so a chain adds every ``together``-th row.
    """
    n, channels = arrays[0].shape
    if n <= CHAIN:
        return sums(*(x[None] for x in arrays))[0]
    chain = largest_divisor(n, CHAIN, CHAIN // 2) or CHAIN
    together = max(min(most, n // chain), 1)
    count = n // (together * chain)
    covered = count * together * chain
    blocks = [x[:covered].reshape(count, chain, together * channels) for x in arrays]
    total = sums(*blocks).reshape(count * together, channels)
    total = ones(len(total), total.dtype) @ total if len(total) <= CHAIN else halved(total)
    return total if covered == n else total + sums_of_chains(sums, most, *(x[covered:] for x in arrays))


def sums_of_pieces(sums: Callable[..., np.ndarray], longest: int, *arrays: np.ndarray) -> np.ndarray:
    """``sums`` of the rows of matrices (N, C), by pieces of a row, which one product adds, or pairs if many.

    Rows of up to 8 pieces stay whole where they do not divide evenly: a chain then has at most 64 additions.
    """
    arrays = tuple(map(np.ascontiguousarray, arrays))
    n, size = arrays[0].shape
    piece = largest_divisor(size, longest, longest // 2) or PIECE
    pieces, rest = divmod(size, piece)
    if pieces < 2 or (rest and pieces < 8):
        return sums(*arrays)
    shape = (n, pieces, piece) if rest else (n * pieces, piece)  # of one large product, where it can be one
    totals = sums(*(x[:, : size - rest].reshape(shape) for x in arrays)).reshape(n, pieces)
    total = totals @ ones(pieces, totals.dtype) if pieces <= PIECE else halved(totals.T)
    return total + sums(*(x[:, size - rest :] for x in arrays)) if rest else total


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
    """``x.sum(axis=axes)``, of an array as it lies in memory as sums of columns or of rows where it can be.

    Arrays of a GPU, or of other types than float32 and float64, have their own sum.
    """
    if type(x) is not np.ndarray or not has_product(x):
        return x.sum(axis=axes)
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
        return x.sum(axis=axes)
    if order[: len(rest)] == rest:
        rows = y.reshape(columns, -1)
        short = rows.shape[1] * x.itemsize <= 64 * 64  # einsum adds 64 bytes at a time
        sums = sums_by_einsum(rows) if short else sums_of_pieces(sums_by_einsum, LONG_PIECE, rows)
    elif order[len(axes) :] == rest:
        sums = column_sums(y.reshape(-1, columns))
    else:
        return x.sum(axis=axes)
    return sums.reshape([x.shape[axis] for axis in rest]).transpose(
        [rest.index(axis) for axis in sorted(rest)]
    )
