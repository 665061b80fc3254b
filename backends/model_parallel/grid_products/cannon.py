"""Cannon's algorithm: the product of two matrices in blocks on a square grid, by shifts to neighbors.

Lecture section: data and model parallelism together. Lesson: 14_hybrid. Cannon 1969. On q x q ranks blocks
of A travel to the left and blocks of B travel up. First row i of A is shifted by i and column j of B by j, so
that rank (i, j) has the blocks (i, i + j) and (i + j, j), which can be multiplied; then q - 1 shifts by one
bring the other pairs. A rank holds one block of each matrix at any time. The shifts send
(m k + k n) (q - 1) numbers in all, as SUMMA does, and the skew some more.
"""

from __future__ import annotations

from minigrad.device import Array

from ...comm.collectives.send_recv import Tag, send_recv
from ...comm.communicator import Communicator
from ..layers.process_grid import ProcessGrid


def cannon(grid: ProcessGrid, a: Array, b: Array) -> Array:
    """This rank's block of C = A B, from its blocks ``a`` and ``b``. Raises ValueError where r is not c."""
    q = grid.row.size
    if grid.column.size != q:
        raise ValueError(
            f"Cannon's algorithm needs as many rows of ranks as columns, got {grid.column.size}x{q}; "
            "take summa"
        )
    a = shifted(grid.row, a, grid.column.rank)
    b = shifted(grid.column, b, grid.row.rank)
    c = a @ b
    for _ in range(q - 1):
        a, b = shifted(grid.row, a, 1), shifted(grid.column, b, 1)
        c += a @ b
    return c


def shifted(comm: Communicator, x: Array, distance: int) -> Array:
    """The block of the rank that is ``distance`` further on, around the ring; by 0 without a message."""
    if not distance % comm.size:
        return x
    return send_recv(
        comm, x, (comm.rank - distance) % comm.size, (comm.rank + distance) % comm.size, Tag.SHIFT
    )
