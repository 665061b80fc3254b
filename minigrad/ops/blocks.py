"""Functions of each element or row in several steps, a part that stays in cache at a time.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``activation.py``. Twenty steps on whole
arrays read memory twenty times, and on parts once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..device import Array

SIZE = 1 << 16  # elements of a part; three in float32 stay in a cache of 1 MB
ROWS_SIZE = 1 << 19  # elements of some rows; parts of 2 ** 17 take 5–20 % longer, parts of 2 ** 20 as long
LONG_ROW = 512  # elements; of shorter rows NumPy's buffers are faster than its loop over rows
LEAST_BUFFER = 16  # elements, the fewest that NumPy takes


def in_blocks(compute: Callable[..., None], *inputs: Array, outputs: int = 1) -> list[Array]:
    """``outputs`` new arrays that ``compute(*inputs, *outputs)`` has written, a part at a time.

    All have the shape, dtype and memory order of the first input.
    """
    results = [np.empty_like(inputs[0]) for _ in range(outputs)]
    outermost_first = sorted(range(results[0].ndim), key=lambda axis: -results[0].strides[axis])
    flat = [x.transpose(outermost_first).reshape(-1) for x in (*inputs, *results)]  # views of the results
    for start in range(0, results[0].size, SIZE):
        compute(*(x[start : start + SIZE] for x in flat))
    return results


def in_rows(compute: Callable[..., Any], *arrays: Array) -> list[Any]:
    """What ``compute(*arrays)`` returns, a list of one; it reads some arrays and writes others, row by row.

    Of large arrays it gets some rows of all at a time, and the list has an item for each part. Small ones
    keep NumPy's buffers: to change these would take longer.
    """
    x = arrays[0]
    if not is_large(x):
        return [compute(*arrays)]
    with in_long_rows(x, arrays[-1]):
        if x.size < 2 * ROWS_SIZE:
            return [compute(*arrays)]
        rows = max(ROWS_SIZE * len(x) // x.size, 1)
        parts = (slice(start, start + rows) for start in range(0, len(x), rows))
        return [compute(*(a[part] for a in arrays)) for part in parts]


def is_large(x: Array) -> bool:
    """Whether an array of the host has so many elements that NumPy's buffers matter more than calls."""
    return type(x) is np.ndarray and x.size >= ROWS_SIZE // 2


@contextmanager
def in_long_rows(x: Array, *others: Array) -> Iterator[None]:
    """Functions of arrays with long rows without NumPy's buffers, where all dtypes are the same.

    NumPy copies what repeats, such as numbers of rows or columns, and rows that lie apart into a buffer of
    8,192 elements, so that it can take rows together. Without, a product of a million elements in rows of
    1,024 takes 0.08 ms, not 0.16, and a sum of every other row of 2,048 elements with the next 0.11 ns an
    element, not 0.17. The buffer also converts dtypes, in parts that would be short.
    """
    short = type(x) is not np.ndarray or not x.ndim or x.shape[-1] < LONG_ROW
    if short or any(a.dtype != x.dtype for a in others):
        yield
        return
    before = np.setbufsize(LEAST_BUFFER)
    try:
        yield
    finally:
        np.setbufsize(before)
