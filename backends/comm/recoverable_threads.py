"""Thread ranks that die: the thread of a rank ends, and the others go on without it.

As with real processes, only who waits for a dead rank learns of its death, and a message to it is lost.
Lecture section: what a cluster would do. Lesson: 15_scale.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self, TypeVar

from minigrad.device import Array
from minigrad.lookup import at_least_one

from .mailboxes import Message, Wait, World, seeded_turns
from .recoverable import CommunicationFailed, RankDied, Recoverable, Revoked
from .threads import ThreadComm, run_world

Result = TypeVar("Result")


class Killed(BaseException):
    """Ends the thread of a rank that dies; no program may catch it."""


@dataclass
class Lifetime:
    """The number of communications that a rank has left; None: it does not die."""

    left: int | None = None

    def pass_communication(self) -> None:
        """Raise Killed where the rank dies before its next communication."""
        if self.left is not None:
            if self.left <= 0:
                raise Killed
            self.left -= 1


@dataclass
class Decision:
    """What the living ranks of a group decide together: their values, and once all are there, who lived."""

    values: dict[int, bool] = field(default_factory=dict)
    alive: list[int] | None = None


@dataclass
class Decisions:
    """What the communicators of all ranks share: groups that were revoked, decisions by group and number."""

    revoked: set[Hashable] = field(default_factory=set)
    of: dict[Hashable, Decision] = field(default_factory=dict)


class RecoverableThreads(ThreadComm, Recoverable):
    """A thread rank's end of a recoverable communicator; a rank is dead once its thread has ended."""

    def __init__(
        self,
        world: World,
        rank: int,
        members: list[int],
        group: Hashable,
        shared: Decisions,
        lifetime: Lifetime,
    ):
        super().__init__(world, rank, members, group)
        self.shared, self.lifetime, self.decisions = shared, lifetime, 0

    def group_of(self, rank: int, members: list[int], group: Hashable) -> Self:
        return type(self)(self.world, rank, members, group, self.shared, self.lifetime)

    def split(self, color: int, key: int | None = None) -> RecoverableThreads:
        group = super().split(color, key)
        assert isinstance(group, type(self))
        return group

    def revoke(self) -> None:
        with self.world.lock:
            self.shared.revoked.add(self.group)
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
        return self.group_of(members.index(self.world_rank), members, ("shrunk", self.group, self.decisions))

    def wait_for_change(self, ranks: Iterable[int]) -> None:
        self.lifetime.pass_communication()
        what, peers = "for the ranks of the communicator to change", [self.members[rank] for rank in ranks]
        super().wait_for(Wait(what, lambda: self.failure(peers, what) is not None, peers, idle=True))

    def is_failure(self, error: Exception) -> bool:
        return isinstance(error, CommunicationFailed)

    # Helpers of the above

    def decide(self, what: str, value: bool) -> Decision:
        """Wait until every rank that is alive has given its value; this rank may die before or after."""
        self.lifetime.pass_communication()
        self.decisions += 1
        shared, running = self.shared.of, self.world.running
        with self.world.lock:
            decision = shared.setdefault((self.group, self.decisions), Decision())
            decision.values[self.rank] = value
            shared.pop((self.group, self.decisions - 2), None)  # every living rank has read that one
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
        self.lifetime.pass_communication()
        return decision

    def deliver(self, x: Array, to: int, tag: int) -> Message:
        self.lifetime.pass_communication()
        with self.world.lock:
            if self.group in self.shared.revoked:
                raise Revoked(f"{self.name(self.rank)} cannot send to {self.name(to)}: the group is revoked")
            lost = self.members[to] not in self.world.running
        if lost:
            return Message(x, self.rank, self.world_rank, 0.0, "", taken=True)
        return super().deliver(x, to, tag)

    def wait_for(self, wait: Wait) -> None:
        """Wait for ``wait``; raises RankDied or Revoked where it cannot become ready."""
        self.lifetime.pass_communication()
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
        if self.group in self.shared.revoked:
            return Revoked(f"{name} cannot wait {what}: the group is revoked")
        died = [peer for peer in peers if peer not in self.world.running and self.world.failed is None]
        return RankDied(f"{name} cannot wait {what}: {self.world.names[died[0]]} died") if died else None

    def remember_pending(self, what: str) -> Callable[[], None]:
        """Nothing to remember: what a death interrupts is never finished."""
        return lambda: None


class MortalThreadComm(ThreadComm):
    """One thread's end of a communicator, whose rank dies when its ``lifetime`` is over."""

    lifetime: Lifetime

    def recoverable(self) -> Recoverable:
        return recoverable_threads(self, self.lifetime)


def recoverable_threads(comm: ThreadComm, lifetime: Lifetime) -> RecoverableThreads:
    """The same ranks as a recoverable communicator; all ranks call."""
    name, shared = comm.barrier_with("to become recoverable", Decisions())
    return RecoverableThreads(comm.world, comm.rank, comm.members, name, shared[0], lifetime)


def is_inside(group: Any, other: Hashable) -> bool:
    """Whether ``group`` is ``other`` or was split from it: then its name begins with that of its whole."""
    while isinstance(group, tuple) and group and group != other:
        group = group[0]
    return group == other


def run_mortal_ranks(
    n: int, fn: Callable[[ThreadComm], Result], deaths: Mapping[int, int], *, seed: int | None = None
) -> list[Result | None]:
    """``run_ranks`` where each rank in ``deaths`` dies after so many communications; its result is None.

    Only calls of ``comm.recoverable()`` and of what is made from it count.
    """
    turns = None if seed is None else seeded_turns(seed)
    world = World(at_least_one("the number of ranks", n), turns=turns)

    def comm_of(rank: int) -> MortalThreadComm:
        comm = MortalThreadComm(world, rank, list(range(n)))
        comm.lifetime = Lifetime(deaths.get(rank))
        return comm

    def work(comm: ThreadComm) -> Result | None:
        try:
            return fn(comm)
        except Killed:
            return None

    return run_world(world, work, comm_of)
