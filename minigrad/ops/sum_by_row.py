"""Gradients of chosen rows: a row that was chosen several times gets a sum.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``linear.py``.
"""

from __future__ import annotations

import numpy as np

from ..device import Array, array_module

TOGETHER = 8  # how many times a row is chosen, up to which all rows are added to together


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
    """``np.add.at(d, rows, g)`` for d of zeros, ten times as fast: in each turn no row gets two of g's."""
    order = np.argsort(rows, kind="stable")
    ordered = rows[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    chosen, times = ordered[starts], np.diff(starts, append=len(rows))
    d[chosen] = g[order[starts]]
    for turn in range(1, min(times.max(), TOGETHER)):
        more = times > turn
        d[chosen[more]] += g[order[starts[more] + turn]]
    for i in np.flatnonzero(times > TOGETHER):
        d[chosen[i]] += g[order[starts[i] + TOGETHER : starts[i] + times[i]]].sum(axis=0)
