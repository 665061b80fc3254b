"""What servers and workers hold of a serial run's state: the parameters and the optimizer's are the servers'.

Lecture section: sharded server. Lesson: 08_parameter_server, by ``parameter_server.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from minigrad.device import Array, array_module, to_host
from minigrad.module import Module
from minigrad.placed_state import Values

from ...comm.collectives import allgather, allreduce
from ...consistency import load_mean, running_statistics, weighted
from ..sharded_optimizer import Elements, ShardedOptimizer

if TYPE_CHECKING:
    from .parameter_server import ParameterServer


class ServersState(ShardedOptimizer):
    """The state of a model whose parameters are cut among the servers."""

    backend: ParameterServer

    def owned_by(self, rank: int) -> Iterator[Elements]:
        """The elements of a server, in the order in which it passes them to its optimizer."""
        layout, number = self.backend.layout, rank - self.backend.workers
        for n, within, _ in layout.segments(number) if number >= 0 else ():
            yield layout.parameters[n], within

    def parameter_values(self, model: Module) -> Values:
        """The servers' parameters, by name. Collective."""
        parts = [answer[1:] for answer in self.newest_answers()]
        views = self.backend.layout.views(to_host(array_module(parts[0]).concatenate(parts)))
        current = dict(zip(self.backend.layout.parameters, views, strict=True))
        return {name: to_host(current.get(p, p.data)) for name, p in model.named_parameters().items()}

    def newest_answers(self) -> list[Array]:
        """What each server holds: its version, and its part of the parameters. Collective."""
        server, first = self.backend.server, self.backend.layout.parameters[0].data
        own = first.reshape(-1)[:0] if server is None else server.answer
        return allgather(self.backend.comm, own)[self.backend.workers :]

    def drain(self, model: Module) -> None:
        """Apply the remaining gradients; then all ranks have the servers' newest parameters.

        Running statistics become the mean of the workers', weighted by their samples.
        """
        self.backend.conclude()
        self.backend.use(self.newest_answers())
        if statistics := running_statistics(model):
            like, samples = self.backend.layout.parameters[0].data, self.backend.samples
            load_mean(statistics, allreduce(self.backend.comm, weighted(like, statistics, float(samples))))

    def own_values(self) -> dict[str, Any]:
        server = self.backend.server
        return super().own_values() | ({} if server is None else server.own_values())

    def set_own_values(self, values: dict[str, Any]) -> None:
        super().set_own_values(values)
        backend = self.backend
        if backend.server is not None:
            backend.server.resume(backend.steps, backend.versions[backend.rank - backend.workers])
            backend.server.set_own_values(values)
