"""Elements that a condition lets through, and rows that are chosen: steps of ops and of their gradients.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``elementwise.py``.
"""

from __future__ import annotations

from ..half import in_single, is_half, rounded
from ..op import Array, array_module, faster


@faster
def masked(g: Array, mask: Array) -> Array:
    """g where ``mask`` holds, else 0, also where g is infinite or NaN, which times 0 is NaN."""
    return array_module(g).where(mask, g, g.dtype.type(0))


@faster
def positive_part(x: Array, out: Array | None = None) -> Array:
    """max(x, 0), also written into ``out``, an array without gaps; in float32 and float64 never -0."""
    return array_module(x).maximum(x, 0, out=out)


@faster
def where_positive(g: Array, y: Array) -> Array:
    """The gradient of y, a ``positive_part``: g where y is positive or NaN, else 0."""
    return masked(g, y != 0)


@faster
def winners(g: Array, x: Array, y: Array) -> Array:
    """g where x > y or one of them is NaN, half of it where they are equal, else 0."""
    return masked(g, ~(x <= y)) + masked(g / 2, x == y)


@faster
def sum_by_row(g: Array, rows: Array, count: int) -> Array:
    """``count`` rows: row i is the sum of g[n] over all n where rows[n], from 0 to count - 1, is i."""
    if is_half(g):
        return rounded(sum_by_row(in_single(g), rows, count), g.dtype)
    xp = array_module(g)
    d = xp.zeros((count, *g.shape[1:]), g.dtype)
    xp.add.at(d, rows, g)
    return d
