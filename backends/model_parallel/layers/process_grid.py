"""Ranks in rows and columns, as matrices that are cut into blocks need them.

Lecture section: data and model parallelism together. Lesson: 14_hybrid, by ``grid_products/linear.py``.
"Process grid" is the term of ScaLAPACK (Blackford et al. 1997).
"""

from __future__ import annotations

import math
import re

from ...comm.communicator import Communicator


class ProcessGrid:
    """The ranks of ``comm`` in ``rows`` x ``columns``: rank = row * columns + column.

    ``row`` has the ranks of this rank's row, as many as there are columns, and ``column`` has those of its
    column. So ``column.rank`` is this rank's row, and ``row.rank`` is its column. Collective: all ranks
    construct it together. Raises ValueError unless there are rows x columns ranks.
    """

    def __init__(self, comm: Communicator, rows: int, columns: int):
        if rows < 1 or columns < 1 or rows * columns != comm.size:
            raise ValueError(
                f"a grid of {rows}x{columns} needs {rows * columns} ranks, got {comm.size}; "
                f"give rows and columns whose product is {comm.size}"
            )
        down, across = divmod(comm.rank, columns)
        self.row, self.column = comm.split(down, across), comm.split(across, down)


def process_grid_of(kind: str, comm: Communicator) -> ProcessGrid | None:
    """The grid that a kind of split names: "grid 2x3", or "grid", as square as possible; None otherwise."""
    name, _, shape = kind.partition(" ")
    if name != "grid":
        return None
    numbers = rows_by_columns(shape, comm.size)
    if numbers is None:
        raise ValueError(f"a grid is written as 'grid' or for example 'grid 2x3', got {kind!r}")
    return ProcessGrid(comm, *numbers)


def rows_by_columns(shape: str, ranks: int) -> tuple[int, int] | None:
    """Both numbers of "2x3"; without a ``shape`` those of as square a grid as the ``ranks`` allow.

    None where the text is something else.
    """
    if not shape:
        rows = max(n for n in range(1, math.isqrt(ranks) + 1) if ranks % n == 0)
        return ranks // rows, rows
    match = re.fullmatch(r"([0-9]+)x([0-9]+)", shape)
    return match and (int(match[1]), int(match[2]))
