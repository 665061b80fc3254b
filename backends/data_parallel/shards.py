"""Who serves what: the parameters laid end to end and cut into one even part for each server.

Lecture section: sharded server. Lesson: 08_parameter_server. Large parameters are cut, small ones share a
server; so every server gets and sends the same bytes, n / S of each push and answer of n.
"""

from __future__ import annotations

from collections.abc import Sequence

from minigrad.data import shares
from minigrad.device import Array, array_module
from minigrad.tensor import Parameter

from ..comm.communicator import Communicator
from .flat import FlatLayout


class Shards(FlatLayout):
    """The layout of parameters of one dtype over ``servers`` parts; their sizes differ by at most one.

    ``part(i)`` are the elements that server number i holds, ``segments(i)`` what of each parameter they are.
    Raises ValueError where there are fewer elements than servers.
    """

    def __init__(self, parameters: Sequence[Parameter], servers: int):
        super().__init__(parameters)
        if servers > self.elements:
            raise ValueError(
                f"{self.elements} parameters cannot be cut among {servers} servers; take fewer servers"
            )
        self.cuts = shares(self.elements, servers)

    def part(self, rank: int) -> slice:
        return self.cuts[rank]

    def gradient(self, server: int) -> tuple[list[bool], list[Array]]:
        """Of each of a server's pieces whether the loss reached its parameter, and the gradient there."""
        reached, found = [], []
        for n, within, _ in self.segments(server):
            parameter = self.parameters[n]
            g = parameter.grad
            reached.append(g is not None)
            g = array_module(parameter.data).zeros_like(parameter.data) if g is None else g
            found.append(g.reshape(-1)[within])
        return reached, found


def beside_workers(comm: Communicator, servers: int) -> Communicator:
    """The same ranks counted anew, workers first, where servers come right after a worker each.

    Of w s w s w, rank 1 is the first server and becomes 3, rank 4 the last worker and becomes 2. Where
    mpiexec gives each machine two ranks, 1/servers of what these workers send never leaves theirs. All
    ranks call. Raises ValueError for more servers than workers.
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
