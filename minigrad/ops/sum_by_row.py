"""Gradients of chosen rows: a row that was chosen several times gets a sum.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``linear.py``.
"""

from __future__ import annotations

from itertools import count as count_from

import numpy as np

from ..device import Array, array_module
from ..sums import column_sums


def sum_by_row(g: Array, rows: Array, count: int) -> Array:
    """An array of ``count`` rows, of which row i is the sum of those of g, (N, ...), where ``rows`` is i."""
    xp = array_module(g)
    d = xp.zeros((count, *g.shape[1:]), g.dtype)
    if xp is np and len(rows) and g.ndim > 1:
        add_by_turns(d, rows, g)
    else:  # of numbers, not rows, NumPy's own form is the fast one
        xp.add.at(d, rows, g)
    return d


def add_by_turns(d: Array, rows: Array, g: Array) -> None:
    """``np.add.at(d, rows, g)`` for d of zeros, 15 times as fast: in each turn no row gets two of g's.

    There are turns while more rows are left than turns were; then each row that is left is one sum.
    """
    order = np.argsort(rows.astype(np.uint16) if len(d) <= 1 << 16 else rows, kind="stable")  # 16 bits: linear
    ordered = rows[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    times = np.diff(starts, append=len(rows))
    most_first = np.argsort(-times, kind="stable")
    starts, times = starts[most_first], times[most_first]
    sums = np.take(g, order[starts], axis=0)
    for turn in count_from(1):
        left = np.count_nonzero(times > turn)
        if left <= turn:
            break
        sums[:left] += np.take(g, order[starts[:left] + turn], axis=0)
    for i in range(left):
        more = np.take(g, order[starts[i] + turn : starts[i] + times[i]], axis=0)
        sums[i] += column_sums(more.reshape(len(more), -1)).reshape(sums.shape[1:])
    d[ordered[starts]] = sums
