"""When a parameter server makes an update, and when it lets a worker go on: two rules.

Lecture section: asynchronous parameter server. Lesson: 08_parameter_server.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from .server import Push, Server


class Rule(Protocol):
    """When a server updates, and whom it lets go on."""

    def due(self, server: Server) -> list[Push] | None:
        """The gradients whose mean is to be applied now, or None."""
        ...

    def share(self, server: Server, pushes: list[Push]) -> float:
        """What part of a batch the mean of ``pushes`` is for."""
        ...

    def may_go_on(self, server: Server, clock: int) -> bool:
        """Whether a worker that has made ``clock`` pushes gets parameters for the next."""
        ...


@dataclass(frozen=True)
class OnArrival:
    """Update after every ``count`` gradients, whoever sent them; nobody ever waits for another worker.

    ``count`` 1 is the fully asynchronous server; floor(workers / n) is n-softsync (Zhang et al. 2016).
    """

    count: int = 1

    def due(self, server: Server) -> list[Push] | None:
        return server.pushes[: self.count] if len(server.pushes) >= self.count else None

    def share(self, server: Server, pushes: list[Push]) -> float:
        return min(len(pushes) / max(len(server.clocks), 1), 1.0)

    def may_go_on(self, server: Server, clock: int) -> bool:
        return True


@dataclass(frozen=True)
class Bounded:
    """Update by the gradients of one step of all workers, in the order of their ranks; versions are steps.

    A worker's clock is the number of the step it computes, counted from 0, and its gradients pushed before.
    It begins step c when all have pushed their gradients of the steps before c - s, where s is ``staleness``:
    so max(clock) - min(clock) <= s, and no gradient is staler than s. s = 0 is synchronous training. This is
    the guarantee of stale synchronous parallel (Ho et al. 2013); there, however, a worker also sees its own
    updates, and perhaps others', before a step is complete.
    """

    staleness: int

    def due(self, server: Server) -> list[Push] | None:
        if min(server.clocks.values(), default=0) <= server.version:
            return None
        return sorted((p for p in server.pushes if p.clock == server.version), key=lambda p: p.worker)

    def share(self, server: Server, pushes: list[Push]) -> float:
        return 1.0

    def may_go_on(self, server: Server, clock: int) -> bool:
        return clock - server.version <= self.staleness


def rule_for(workers: int, staleness: int | None, softsync: int | None) -> Rule:
    """The rule that the settings of ``ParameterServer`` choose; ValueError where they do not fit."""
    if staleness is not None and softsync is not None:
        raise ValueError(f"staleness={staleness} and softsync={softsync} are two different rules; give one")
    if staleness is not None:
        if staleness < 0:
            raise ValueError(f"staleness must be at least 0 steps, got {staleness}")
        return Bounded(staleness)
    if softsync is None:
        return OnArrival()
    if not 1 <= softsync <= workers:
        raise ValueError(f"softsync must be 1 to {workers}, the number of workers, got {softsync}")
    return OnArrival(workers // softsync)


def check_servers(servers: int, ranks: int) -> None:
    """Raise ValueError unless so many of the ranks can be servers; of one rank its own."""
    if not 1 <= servers < max(ranks, 2):
        raise ValueError(
            f"of {ranks} ranks 1 to {max(ranks - 1, 1)} can be servers, got {servers}; "
            "take fewer servers or start more ranks"
        )
