"""Thread ranks that die after so many communications, for trials of what goes on without them.

Lecture section: what a cluster would do. Lesson: 15_scale.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from backends.comm.communicator import Result
from backends.comm.mailboxes import Message, Turns, Wait, World, seeded_turns
from backends.comm.recoverable_threads import Decision, RecoverableThreads
from backends.comm.thread_ranks import run_world
from backends.comm.threads import ThreadComm
from minigrad.device import Array
from minigrad.lookup import at_least_one


class Killed(BaseException):
    """Ends the thread of a rank that dies; no program may catch it."""


def run_mortal_ranks(
    n: int, fn: Callable[[ThreadComm], Result], deaths: Mapping[int, int], *, seed: int | None = None
) -> list[Result | None]:
    """``run_ranks`` where each rank in ``deaths`` dies after so many communications; its result is None.

    Only calls of ``comm.recoverable()`` and of what is made from it count.
    """
    turns = None if seed is None else seeded_turns(seed)

    def work(comm: ThreadComm) -> Result | None:
        try:
            return fn(comm)
        except Killed:
            return None

    return run_world(MortalWorld(at_least_one("the number of ranks", n), turns, deaths), work, MortalComm)


class MortalWorld(World):
    """The state of ranks of which some die, each after its number of ``communications_left``."""

    def __init__(self, size: int, turns: Turns | None, deaths: Mapping[int, int]):
        super().__init__(size, turns=turns)
        self.communications_left = dict(deaths)


class MortalComm(ThreadComm):
    """One thread's end of a communicator whose ranks die once it is recoverable."""

    def recoverable(self) -> MortalRecoverable:
        name, _ = self.barrier_with("to become recoverable")
        return MortalRecoverable(self.world, self.rank, self.members, name)


class MortalRecoverable(RecoverableThreads):
    """A mortal rank's end of a recoverable communicator; it may die before each communication."""

    world: MortalWorld

    def pass_communication(self) -> None:
        """Raise Killed where the rank dies before its next communication."""
        left, rank = self.world.communications_left, self.world.owners[self.world_rank]
        if rank in left:
            if left[rank] <= 0:
                raise Killed
            left[rank] -= 1

    def wait_for_change(self, ranks: Iterable[int]) -> None:
        self.pass_communication()
        super().wait_for_change(ranks)

    def decide(self, what: str, value: bool) -> Decision:
        """Decide with the living ranks; this rank may die before or after."""
        self.pass_communication()
        decision = super().decide(what, value)
        self.pass_communication()
        return decision

    def deliver(self, x: Array, to: int, tag: int) -> Message:
        self.pass_communication()
        return super().deliver(x, to, tag)

    def wait_for(self, wait: Wait) -> None:
        self.pass_communication()
        super().wait_for(wait)
