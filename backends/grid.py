"""Ranks as a grid of data x pipe x sequence x model, so that every strategy has a group to communicate in.

Lecture section: data and model parallelism together. Lesson: 14_hybrid.
"""

from __future__ import annotations

import math

import numpy as np

from .comm.communicator import Communicator

AXES = ("data", "pipe", "sequence", "model")


class Grid:
    """The groups of one rank: along each axis, the ranks that differ from it in that coordinate only.

    Ranks are numbered with the model axis fastest, then the sequence axis, as these communicate in every
    layer and should be neighbors: rank = ((data coordinate * pipe + pipe coordinate) * sequence + sequence
    coordinate) * model + model coordinate. Collective: all ranks construct it. Raises ValueError unless the
    product of the axes is the number of ranks.
    """

    def __init__(
        self, comm: Communicator, *, data: int = 1, pipe: int = 1, sequence: int = 1, model: int = 1
    ):
        self.comm, self.shape = comm, (data, pipe, sequence, model)
        check_grid(comm.size, **dict(zip(AXES, self.shape, strict=True)))
        self.place = tuple(map(int, np.unravel_index(comm.rank, self.shape)))
        self.data, self.pipe, self.sequence, self.model = (self.along(axis) for axis in range(len(AXES)))

    def __repr__(self) -> str:
        axes = " x ".join(f"{axis} {size}" for axis, size in zip(AXES, self.shape, strict=True))
        return f"Grid({axes}, rank {self.comm.rank} at {self.place})"

    def along(self, axis: int) -> Communicator:
        """The group along an axis; its ranks are the coordinates."""
        line = list(self.place)
        line[axis] = 0
        return self.comm.split(int(np.ravel_multi_index(line, self.shape)), self.place[axis])


def check_grid(ranks: int, **axes: int) -> None:
    """Raise ValueError unless every axis has at least 1 rank and their product is ``ranks``."""
    for axis, size in axes.items():
        if size < 1:
            raise ValueError(f"--{axis} must be at least 1, got {size}")
    needed = math.prod(axes.values())
    if needed != ranks:
        shape = " x ".join(f"{axis} {axes.get(axis, 1)}" for axis in AXES)
        raise ValueError(
            f"a grid of {shape} needs {needed} ranks, got {ranks}; run with mpiexec -n {needed}, or change "
            f"{', '.join(f'--{axis}' for axis in AXES)}"
        )


def colocate_servers(comm: Communicator, servers: int) -> Communicator:
    """A communicator with the workers first, of ranks where each server follows directly after a worker.

    Of w s w s w, rank 1 is the first server and becomes 3, rank 4 the last worker and becomes 2. Where
    mpiexec gives each machine two ranks, 1/servers of the data of these workers never leaves their machine.
    Collective. Raises ValueError for more servers than workers.
    """
    workers = comm.size - servers
    if servers > workers:
        raise ValueError(
            f"{servers} servers cannot sit beside {workers} workers; take at most {comm.size // 2}"
        )
    pair, serves = divmod(comm.rank, 2)
    if pair >= servers:
        return comm.split(0, comm.rank - servers)
    return comm.split(0, workers + pair if serves else pair)
