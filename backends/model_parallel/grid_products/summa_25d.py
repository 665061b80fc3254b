"""2.5D: several grids with a copy of both matrices each take some terms of the product, for fewer bytes.

Lecture section: data and model parallelism together. Lesson: 14_hybrid. Solomonik and Demmel 2011, here with
SUMMA within each layer. Of p ranks, c layers of q x q, q = sqrt(p / c), each layer takes 1 / c of the panels,
and the layers' results are added. All layers together send m k (q - 1) + k n (q - 1) numbers, as one layer
alone would; the copies and the sum send (m k + k n + m n) (c - 1) more. c = 1 is SUMMA, and c = p^(1/3), with
one panel for each layer, is called 3D.
"""

from __future__ import annotations

from minigrad.data import shares
from minigrad.device import Array

from ...comm.collectives import broadcast, reduce
from ...comm.communicator import Communicator
from ..layers.process_grid import ProcessGrid
from .summa import panels, summa


class LayeredGrid:
    """The ranks of ``comm`` as ``layers`` of rows x columns: rank = (layer * rows + row) * columns + column.

    ``grid`` is this rank's layer, ``depth`` the ranks of all layers at its place. Collective: all ranks
    construct it together. Raises ValueError unless there are layers x rows x columns ranks.
    """

    def __init__(self, comm: Communicator, layers: int, rows: int, columns: int):
        if layers < 1 or layers * rows * columns != comm.size:
            raise ValueError(
                f"{layers} layers of {rows}x{columns} need {layers * rows * columns} ranks, got {comm.size}; "
                f"give numbers whose product is {comm.size}"
            )
        layer, place = divmod(comm.rank, rows * columns)
        self.grid = ProcessGrid(comm.split(layer, place), rows, columns)
        self.depth = comm.split(place, layer)


def summa_25d(layered: LayeredGrid, a: Array, b: Array, k: int) -> Array | None:
    """This rank's block of C = A B on the first layer, from the first layer's blocks; None on the others.

    What the other layers pass as ``a`` and ``b`` is not looked at. ``k`` is the length of the whole sum.
    """
    grid, depth = layered.grid, layered.depth
    a, b = broadcast(depth, a), broadcast(depth, b)
    terms = panels(k, grid.column.size, grid.row.size)
    own = terms[shares(len(terms), depth.size)[depth.rank]]
    return reduce(depth, summa(grid, a, b, own))
