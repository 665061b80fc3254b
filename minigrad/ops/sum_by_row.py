"""Gradients of chosen rows: a row that was chosen several times gets a sum.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``linear.py``.
"""

from __future__ import annotations

import numpy as np

from ..device import Array, array_module, in_c_order
from ..sums import column_sums


def sum_by_row(g: Array, rows: Array, count: int) -> Array:
    """An array of ``count`` rows, of which row i is the sum of those of g, (N, ...), where ``rows`` is i."""
    xp = array_module(g)
    d = xp.zeros((count, *g.shape[1:]), g.dtype)
    if xp is not np:
        xp.add.at(d, rows, g)
    elif g.size == len(g):  # of numbers, not rows, NumPy's own form is the fast one
        np.add.at(d.reshape(-1), rows, g.reshape(-1))
    elif g.size:
        g = g.reshape(len(g), -1)
        add_by_turns(d.reshape(count, -1), rows, g if g.flags.c_contiguous else in_c_order(g, g.dtype))
    return d


def add_by_turns(d: Array, rows: Array, g: Array) -> None:
    """``np.add.at(d, rows, g)`` for d of zeros, ten times as fast: in each turn no row gets two of g's.

    There are turns while more rows are left than turns were; then each row that is left is one sum.
    """
    order = np.argsort(
        rows.astype(np.uint16) if len(d) <= 1 << 16 else rows, kind="stable"
    )  # 16 bits: linear
    ordered = rows[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    times = np.diff(starts, append=len(rows))
    most_first = np.argsort(-times, kind="stable")
    starts, times = starts[most_first], times[most_first]
    sums = np.take(g, order[starts], axis=0)
    turn = 1
    while (left := np.count_nonzero(times > turn)) > turn:
        sums[:left] += np.take(g, order[starts[:left] + turn], axis=0)
        turn += 1
    for i in range(left):
        sums[i] += column_sums(np.take(g, order[starts[i] + turn : starts[i] + times[i]], axis=0))
    d[ordered[starts]] = sums
