"""Ranks as a grid with the axes data x pipe x model, so that every strategy has a group to communicate in.

Lecture section: data and model parallelism together. Lesson: 14_hybrid.
"""

from __future__ import annotations

import numpy as np

from .comm.communicator import Communicator

AXES = ("data", "pipe", "model")


class Grid:
    """The groups of one rank: along each axis, the ranks that differ from it in that coordinate only.

    Ranks are numbered with the model axis fastest, as its ranks communicate most and should be neighbors:
    rank = (data coordinate * pipe + pipe coordinate) * model + model coordinate. Collective:
    all ranks construct it. Raises ValueError unless data * pipe * model is the number of ranks.
    """

    def __init__(self, comm: Communicator, *, data: int = 1, pipe: int = 1, model: int = 1):
        check_grid(comm.size, data=data, pipe=pipe, model=model)
        self.comm, self.shape = comm, (data, pipe, model)
        self.place = tuple(map(int, np.unravel_index(comm.rank, self.shape)))
        self.data, self.pipe, self.model = (self.along(axis) for axis in range(len(AXES)))

    def along(self, axis: int) -> Communicator:
        """The group along an axis; its ranks are the coordinates."""
        others = [c for i, c in enumerate(self.place) if i != axis]
        sizes = [n for i, n in enumerate(self.shape) if i != axis]
        return self.comm.split(others[0] * sizes[1] + others[1], self.place[axis])


def check_grid(ranks: int, *, data: int = 1, pipe: int = 1, model: int = 1) -> None:
    """Raise ValueError unless every axis has at least 1 rank and their product is ``ranks``."""
    sizes = {"--data": data, "--pipe": pipe, "--model": model}
    for flag, size in sizes.items():
        if size < 1:
            raise ValueError(f"{flag} must be at least 1, got {size}")
    needed = data * pipe * model
    if needed != ranks:
        raise ValueError(
            f"grid {data}x{pipe}x{model} needs {needed} ranks, got {ranks}; "
            f"run with mpiexec -n {needed} or change --data/--pipe/--model"
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
