"""When a parameter server makes an update, and when a worker may proceed: two consistency models.

Lecture section: asynchronous parameter server. Lesson: 08_parameter_server.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .server import Push, Server


@dataclass(frozen=True)
class Asynchronous:
    """Update after every ``count`` gradients from any workers; no worker ever waits for another.

    ``count`` 1 is the fully asynchronous server; floor(workers / n) is n-softsync (Zhang et al. 2016).
    """

    count: int = 1

    def next_update(self, server: Server) -> list[Push] | None:
        """The gradients whose mean the server applies now; None if it must wait."""
        return server.pushes[: self.count] if len(server.pushes) >= self.count else None

    def share(self, server: Server, pushes: list[Push]) -> float:
        """The share of a batch that ``pushes`` were computed from."""
        return min(len(pushes) / max(len(server.clocks), 1), 1.0)

    def may_proceed(self, server: Server, clock: int) -> bool:
        """Whether a worker that has made ``clock`` pushes gets parameters for the next one."""
        return True


@dataclass(frozen=True)
class BoundedStaleness:
    """Update by all workers' gradients of one step, in the order of the ranks; versions count steps.

    A worker's clock is the number of gradients it has pushed, so the number of the step it computes. It
    begins step c when all workers have pushed their gradients of the steps before c - s, where s is
    ``staleness``: so max(clock) - min(clock) <= s, and no gradient is staler than s. s = 0 is synchronous
    training. This is the guarantee of stale synchronous parallel (Ho et al. 2013); there, however, a worker
    also sees its own updates, and perhaps others', before a step is complete.
    """

    staleness: int

    def next_update(self, server: Server) -> list[Push] | None:
        if min(server.clocks.values(), default=0) <= server.version:
            return None
        return sorted((p for p in server.pushes if p.clock == server.version), key=lambda p: p.worker)

    def share(self, server: Server, pushes: list[Push]) -> float:
        return 1.0

    def may_proceed(self, server: Server, clock: int) -> bool:
        return clock - server.version <= self.staleness


ConsistencyModel = Asynchronous | BoundedStaleness


def consistency_model(workers: int, staleness: int | None, softsync: int | None) -> ConsistencyModel:
    """The model that these settings of ``ParameterServer`` choose; ValueError where they do not fit."""
    if staleness is not None and softsync is not None:
        raise ValueError(
            f"staleness={staleness} and softsync={softsync} choose different consistency models; pass one"
        )
    if staleness is not None:
        if staleness < 0:
            raise ValueError(f"staleness must be at least 0 steps, got {staleness}")
        return BoundedStaleness(staleness)
    if softsync is None:
        return Asynchronous()
    if not 1 <= softsync <= workers:
        raise ValueError(f"softsync must be 1 to {workers}, the number of workers, got {softsync}")
    return Asynchronous(workers // softsync)
