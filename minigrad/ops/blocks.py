"""Functions of each element or row in several steps, a part that stays in cache at a time.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``activation.py``. Twenty steps on whole
arrays read memory twenty times, and on parts once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

import numpy as np

from ..device import Array

SIZE = 1 << 16  # elements of a part; three in float32 stay in a cache of 1 MB
ROWS_SIZE = 1 << 17  # elements of some rows
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


def in_rows(function: Callable[..., Array], x: Array, *others: Array) -> Array:
    """``function(x, *others)``, which takes ``out=`` and treats each row of x (N, ...) alone.

    Of a large x it gets some rows at a time, and of the others that have as many axes and rows the same ones.
    """
    n = len(x)
    if not is_large(x) or n == 1:
        return function(x, *others)
    rows = max(ROWS_SIZE * n // x.size, 1)
    arrays = [(a, a.ndim == x.ndim and len(a) == n) for a in (x, *others)]
    result = None
    with unbuffered(x, *others):
        for start in range(0, n, rows):
            part = slice(start, start + rows)
            inputs = (a[part] if by_row else a for a, by_row in arrays)
            if result is None:
                first = function(*inputs)
                result = np.empty_like(x, dtype=first.dtype)
                result[part] = first
            else:
                function(*inputs, out=result[part])
    return result


@contextmanager
def unbuffered(x: Array, *others: Array) -> Iterator[None]:
    """Functions of a large x, beside numbers for each row or column, without NumPy's buffers.

    NumPy copies what repeats into a buffer of 8,192 elements, so that it can take rows together. Without
    that, a product of a million elements in rows of 1,024 takes 0.08 ms, and not 0.16. What follows must not
    convert a dtype, 16 elements at a time: where the arrays' dtypes differ, nothing changes.
    """
    with in_long_rows(x, *others) if is_large(x) else nullcontext():
        yield


@contextmanager
def in_long_rows(x: Array, *others: Array) -> Iterator[None]:
    """``unbuffered`` for arrays of any size, such as parts of images whose rows lie apart from one another.

    Sums of every other row of 2,048 elements with the next take 0.11 ns an element, and not 0.17.
    """
    if type(x) is not np.ndarray or x.shape[-1] < LONG_ROW or any(a.dtype != x.dtype for a in others):
        yield
        return
    before = np.setbufsize(LEAST_BUFFER)
    try:
        yield
    finally:
        np.setbufsize(before)


def is_large(x: Array) -> bool:
    """Whether x, of the host, does not stay in the cache from one function to the next."""
    return type(x) is np.ndarray and x.size >= 2 * ROWS_SIZE
