"""Functions of arrays with long rows.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``window_sums.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from ..device import Array

LONG_ROW = 512  # elements; of shorter rows NumPy's buffers are faster than its loop over rows
LEAST_BUFFER = 16  # elements, the fewest that NumPy takes


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
