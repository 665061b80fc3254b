"""Gradients of chosen rows: a row that was chosen several times gets a sum.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``linear.py``.
"""

from __future__ import annotations

from ..device import Array, array_module
from ..faster import faster


@faster
def sum_by_row(g: Array, rows: Array, count: int) -> Array:
    """An array of ``count`` rows, of which row i is the sum of those of g, (N, ...), where ``rows`` is i.

    ``rows`` are integers from 0 to count - 1.
    """
    xp = array_module(g)
    d = xp.zeros((count, *g.shape[1:]), g.dtype)
    xp.add.at(d, rows, g)
    return d
