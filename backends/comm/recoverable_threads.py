"""Thread ranks that go on without those whose threads have ended.

As with real processes, only who waits for a dead rank learns of its death, and a message to it is lost.
Lecture section: what a cluster would do. Lesson: 15_scale, by ``thread_ranks.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Self

from minigrad.device import Array

from .mailboxes import Message, Wait
from .recoverable import CommunicationFailed, RankDied, Recoverable, Revoked
from .threads import ThreadComm


@dataclass
class Decision:
    """What the living ranks of a group decide together: their values, and once all are there, who lived."""

    values: dict[int, bool] = field(default_factory=dict)
    alive: list[int] | None = None


class RecoverableThreads(ThreadComm, Recoverable):
    """A thread rank's end of a recoverable communicator; a rank is dead once its thread has ended."""

    count = 0  # of decisions

    def revoke(self) -> None:
        with self.world.lock:
            self.world.revoked.add(self.group)
            self.world.notify_all()

    def agree(self, flag: bool) -> bool:
        decision = self.decide("to agree", flag)
        return decision.alive == list(range(self.size)) and all(decision.values.values())

    def shrink(self) -> Self:
        alive = self.decide("to shrink", True).alive
        assert alive is not None
        members = [self.members[rank] for rank in alive]
        with self.world.lock:  # nobody sends here any more: all that live are in this call
            for boxes in (self.world.mailboxes, self.world.slots):
                for mailbox in [box for box in boxes if is_inside(box[0], self.group)]:
                    del boxes[mailbox]
        return self.group_of(members.index(self.world_rank), members, ("shrunk", self.group, self.count))

    def wait_for_change(self, ranks: Iterable[int]) -> None:
        what, peers = "for the ranks of the communicator to change", [self.members[rank] for rank in ranks]
        super().wait_for(Wait(what, lambda: self.failure(peers, what) is not None, peers, idle=True))

    # Helpers of the above

    def decide(self, what: str, value: bool) -> Decision:
        """Wait until every rank that is alive has given its value."""
        self.count += 1
        decisions, running = self.world.decisions, self.world.running
        with self.world.lock:
            decision = decisions.setdefault((self.group, self.count), Decision())
            decision.values[self.rank] = value
            decisions.pop((self.group, self.count - 2), None)  # every living rank has read that one
            self.world.notify_all()

        def ready() -> bool:
            if self.world.failed is not None:  # a program raised an error: no death, and the end of all
                return decision.alive is not None
            alive = [rank for rank, member in enumerate(self.members) if member in running]
            if decision.alive is None and all(rank in decision.values for rank in alive):
                decision.alive = alive
            return decision.alive is not None

        others = [member for member in self.members if member != self.world_rank]
        super().wait_for(Wait(f"for all living ranks {what}", ready, others))
        return decision

    def deliver(self, x: Array, to: int, tag: int) -> Message:
        with self.world.lock:
            if self.group in self.world.revoked:
                raise Revoked(f"{self.name(self.rank)} cannot send to {self.name(to)}: the group is revoked")
            lost = self.members[to] not in self.world.running
        if lost:
            return Message(x, self.rank, self.world_rank, 0.0, "", taken=True)
        return super().deliver(x, to, tag)

    def wait_for(self, wait: Wait) -> None:
        """Wait for ``wait``; raises RankDied or Revoked where it cannot become ready."""
        peers = list(wait.peers)
        super().wait_for(
            replace(
                wait,
                ready=lambda: wait.ready() or self.failure(peers, wait.what) is not None,
                peers=peers,
                at=lambda: wait.at() if wait.ready() else 0.0,
            )
        )
        if not wait.ready() and (failure := self.failure(peers, wait.what)):
            raise failure

    def failure(self, peers: Iterable[int], what: str) -> CommunicationFailed | None:
        """Why a wait for ``peers``, ranks of the world, cannot end; None if it can."""
        name = self.world.names[self.world_rank]
        if self.group in self.world.revoked:
            return Revoked(f"{name} cannot wait {what}: the group is revoked")
        died = [peer for peer in peers if peer not in self.world.running and self.world.failed is None]
        return RankDied(f"{name} cannot wait {what}: {self.world.names[died[0]]} died") if died else None

    def remember_pending(self, what: str) -> Callable[[], None]:
        """Nothing to remember: what a death interrupts is never finished."""
        return lambda: None


class MortalThreadComm(ThreadComm):
    """One thread's end of a communicator whose ranks may die; ``run_ranks`` makes it."""

    def recoverable(self) -> Recoverable:
        name, _ = self.barrier_with("to become recoverable")
        return RecoverableThreads(self.world, self.rank, self.members, name)


def is_inside(group: Any, other: Hashable) -> bool:
    """Whether ``group`` is ``other`` or was split from it: then its name begins with that of its whole."""
    while isinstance(group, tuple) and group and group != other:
        group = group[0]
    return group == other
