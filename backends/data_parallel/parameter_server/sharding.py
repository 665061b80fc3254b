"""The parameters laid end to end and cut into one even part for each server.

Lecture section: sharded server. Lesson: 08_parameter_server. Large parameters are cut, small ones share a
server; so all servers receive and send the same bytes, n / S of each push and pull of n.
"""

from __future__ import annotations

from collections.abc import Sequence

from minigrad.data import shares
from minigrad.device import Array, array_module
from minigrad.tensor import Parameter

from ...comm.communicator import Communicator
from ..flat import FlatLayout


class Sharding(FlatLayout):
    """The layout of parameters of one dtype over ``servers`` parts; their sizes differ by at most one.

    ``part(i)`` are the elements on server number i, ``segments(i)`` the same elements by parameter. Raises
    ValueError where there are fewer elements than servers.
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
        """For each segment of a server: whether the loss reached its parameter, and the gradient."""
        reached, pieces = [], []
        for n, within, _ in self.segments(server):
            w, g = self.parameters[n].data, self.parameters[n].grad
            reached.append(g is not None)
            pieces.append((array_module(w).zeros_like(w) if g is None else g).reshape(-1)[within])
        return reached, pieces


def check_servers(servers: int, ranks: int) -> None:
    """Raise ValueError unless that many ranks can be servers; a single rank may be its own server."""
    if not 1 <= servers < max(ranks, 2):
        raise ValueError(
            f"of {ranks} ranks 1 to {max(ranks - 1, 1)} can be servers, got {servers}; "
            "take fewer servers or start more ranks"
        )


def colocate_servers(comm: Communicator, servers: int) -> Communicator:
    """The same ranks, renumbered with the workers first, where each server follows directly after a worker.

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
