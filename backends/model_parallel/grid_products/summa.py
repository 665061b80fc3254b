"""SUMMA: the product of two matrices of which each rank of a grid has a block, and its two gradients.

Lecture section: data and model parallelism together. Lesson: 14_hybrid, by ``linear.py``. C (m, n) is
A (m, k) B (k, n), and rank (i, j) of r x c has block (i, j) of each. The sum over k is taken panel by panel:
the ranks that have a panel of A send it along their rows, those that have one of B along their columns
(van de Geijn and Watts 1997). A broadcast to c ranks is c - 1 copies, so all ranks together send
m k (c - 1) + k n (r - 1) numbers, however uneven the blocks are; each gradient sends as many.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from minigrad.data import shares
from minigrad.device import Array, array_module

from ...comm.collectives import broadcast, reduce
from ..layers.process_grid import ProcessGrid


class Panel(NamedTuple):
    """Consecutive terms of the sum over k, of which one column of ranks has A's, and one row has B's."""

    column: int
    row: int
    of_a: slice
    """The panel's columns within the blocks of A on the ranks in ``column``."""
    of_b: slice
    """The panel's rows within the blocks of B on the ranks in ``row``."""


def panels(k: int, rows: int, columns: int) -> list[Panel]:
    """The terms 0 to k - 1, cut wherever the blocks of A, in ``columns``, or of B, in ``rows``, end."""
    result = []
    for column, a in enumerate(shares(k, columns)):
        for row, b in enumerate(shares(k, rows)):
            start, stop = max(a.start, b.start), min(a.stop, b.stop)
            if start < stop:
                of_a, of_b = (slice(start - block.start, stop - block.start) for block in (a, b))
                result.append(Panel(column, row, of_a, of_b))
    return result


def summa(grid: ProcessGrid, a: Array, b: Array, panels: Sequence[Panel]) -> Array:
    """This rank's block of C = A B, from its blocks ``a`` and ``b``."""
    c = array_module(a).zeros((len(a), b.shape[1]), a.dtype)
    for panel in panels:
        columns_of_a = broadcast(grid.row, a[:, panel.of_a], panel.column)
        rows_of_b = broadcast(grid.column, b[panel.of_b], panel.row)
        c += columns_of_a @ rows_of_b
    return c


def summa_gradient_of_a(grid: ProcessGrid, g: Array, b: Array, panels: Sequence[Panel]) -> Array:
    """This rank's block of G B^T, the gradient of A, from its blocks of G, the gradient of C, and of B.

    Where the product broadcasts along rows, the gradient sums along them.
    """
    own = [panel for panel in panels if panel.column == grid.row.rank]
    da = array_module(g).empty((len(g), sum(panel.of_a.stop - panel.of_a.start for panel in own)), g.dtype)
    for panel in panels:
        rows_of_b = broadcast(grid.column, b[panel.of_b], panel.row)
        total = reduce(grid.row, g @ rows_of_b.T, root=panel.column)
        if total is not None:
            da[:, panel.of_a] = total
    return da


def summa_gradient_of_b(grid: ProcessGrid, a: Array, g: Array, panels: Sequence[Panel]) -> Array:
    """This rank's block of A^T G, the gradient of B, from its blocks of A and of G, the gradient of C.

    Where the product broadcasts along columns, the gradient sums along them.
    """
    own = [panel for panel in panels if panel.row == grid.column.rank]
    db = array_module(g).empty(
        (sum(panel.of_b.stop - panel.of_b.start for panel in own), g.shape[1]), g.dtype
    )
    for panel in panels:
        columns_of_a = broadcast(grid.row, a[:, panel.of_a], panel.column)
        total = reduce(grid.column, columns_of_a.T @ g, root=panel.row)
        if total is not None:
            db[panel.of_b] = total
    return db
