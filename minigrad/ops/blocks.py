"""Functions of each element in several steps, a part that stays in cache at a time.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``activation.py``. Twenty steps on whole
arrays read memory twenty times, and on parts once.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..device import Array

SIZE = 1 << 16  # elements of a part; three in float32 stay in a cache of 1 MB


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
