"""Gradients of chosen rows: a row that was chosen several times gets a sum.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``linear.py``.
"""

from __future__ import annotations

import numpy as np

from .. import loops
from ..device import Array, array_module


def sum_by_row(g: Array, rows: Array, count: int) -> Array:
    """An array of ``count`` rows, of which row i is the sum of those of g, (N, ...), where ``rows`` is i.

    ``rows`` are integers from 0 to count - 1.
    """
    xp = array_module(g)
    d = xp.zeros((count, *g.shape[1:]), g.dtype)
    if loops.can_take(g):
        flat, rows = np.ascontiguousarray(g).reshape(len(g), -1), np.ascontiguousarray(rows, np.intp)
        add_rows(flat, rows, d.reshape(count, -1))
    else:
        xp.add.at(d, rows, g)
    return d


@loops.compiled
def add_rows(g: Array, rows: Array, d: Array) -> None:
    if g.shape[1] == 1:
        numbers, sums = g[:, 0], d[:, 0]
        for i in range(len(rows)):
            sums[rows[i]] += numbers[i]
        return
    for i in range(len(rows)):
        row, part = d[rows[i]], g[i]
        for j in range(len(part)):
            row[j] += part[j]
