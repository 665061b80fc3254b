"""Functions of each element or row in several steps, a part that stays in cache at a time.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``activation.py``. Twenty steps on whole
arrays read memory twenty times, and on parts once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from ..device import Array, array_module

SIZE = 1 << 15  # elements of a part
ROWS_SIZE = 1 << 16  # elements of some rows
LONG_ROW = 512  # elements; of shorter rows NumPy's buffers are faster than its loop over rows
LEAST_BUFFER = 16  # elements, the fewest that NumPy takes


@contextmanager
def unbuffered(*arrays: Array) -> Iterator[None]:
    """Functions of long rows, beside numbers for each row or column, without NumPy's buffers.

    NumPy copies what repeats into a buffer of 8,192 elements, so that it can take rows together. Without that,
    a function of a million elements in rows of 1,024 takes 0.08 ms and not 0.16. What follows must not convert
    a dtype, which would then be done 16 elements at a time: where the arrays' dtypes differ, nothing changes.
    """
    if arrays[0].shape[-1] < LONG_ROW or arrays[0].size < 2 * ROWS_SIZE or any(x.dtype != arrays[0].dtype for x in arrays):
        yield
        return
    before = np.setbufsize(LEAST_BUFFER)
    try:
        yield
    finally:
        np.setbufsize(before)


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


def row_parts(*arrays: Array, size: int = ROWS_SIZE) -> Iterator[list[Array]]:
    """The same rows of all arrays (N, ...), as views with about ``size`` elements of the first; on a GPU all."""
    x = arrays[0]
    rows = max(size * len(x) // max(x.size, 1), 1) if array_module(x) is np else max(len(x), 1)
    for start in range(0, max(len(x), 1), rows):
        yield [a[start : start + rows] for a in arrays]


def empty_beside(x: Array, *others: Array | None) -> Array:
    """An empty array like x, for results of a function of x and the others that are there."""
    xp = array_module(x)
    return xp.empty_like(x, dtype=xp.result_type(*(a.dtype for a in (x, *others) if a is not None)))
