"""Ranks as threads of one process: the default transport, which needs nothing installed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterable
from typing import Any, Self, TypeVar

from minigrad.device import Array, array_module

from .background import ThreadBackground, ThreadWorker
from .leftovers import report_leftovers
from .parts import Part, Parts
from .protocol import RankEnded, check_like, check_peer
from .shared import share_among_threads
from .world import Deadlock, Message, RankFailed, Wait, World, caller, seeded_turns

__all__ = ["Deadlock", "RankFailed", "ThreadComm", "run_ranks"]

Result = TypeVar("Result")


class ThreadComm(Part):
    """One thread's end of a communicator; ``run_ranks`` makes them.

    ``members`` are the group's ranks as ranks of the world, ``started`` what was started and not finished.
    """

    def __init__(self, world: World, rank: int, members: list[int], group: Hashable = ()):
        self.world, self.rank, self.members, self.group = world, rank, members, group
        self.size, self.me = len(members), members[rank]
        self.meetings, self.watched = 0, list[int]()
        self.started: dict[object, str] = {}  # also of the groups and backgrounds made from this
        self.parts = Parts()

    def send(self, x: Array, to: int, tag: int = 0) -> None:
        message = self.deliver(x, to, tag)
        with self.world.lock:
            if self.world.rendezvous:
                self.world.block(self.me, self.until_taken(message, to, tag))
            elif self.world.turns is not None:
                self.world.block(self.me, self.turn())

    def start_send(self, x: Array, to: int, tag: int = 0) -> Callable[[], None]:
        message = self.deliver(x, to, tag)
        done = self.note(f"the send to {self.name(to)} (tag {tag})")

        def finish() -> None:
            done()
            with self.world.lock:
                if self.world.rendezvous:
                    self.world.block(self.me, self.until_taken(message, to, tag))

        return finish

    def recv(self, source: int, tag: int = 0, like: Array | None = None) -> Array:
        return self.finish_recv(self.post(source, tag), source, tag, like)

    def start_recv(self, source: int, tag: int = 0, like: Array | None = None) -> Callable[[], Array]:
        slot = self.post(source, tag)
        done = self.note(f"the receive from {self.name(source)} (tag {tag})")

        def finish() -> Array:
            done()
            return self.finish_recv(slot, source, tag, like)

        return finish

    def recv_any(self, tag: int = 0) -> tuple[int, Array]:
        world, box = self.world, (self.group, self.rank, tag)
        with world.lock:
            others = [m for m in self.members if m != self.me]
            wait = Wait(
                f"to receive from any rank (tag {tag})",
                lambda: box in world.boxes or bool(self.ended()),
                others,
                lambda: min((m.arrival for m in world.boxes.get(box, ())), default=0.0),
            )
            world.block(self.me, wait)
            if box not in world.boxes:
                raise RankEnded(self.ended()[0], wait.what)
            message = world.take(box, min(world.boxes[box], key=lambda m: m.arrival))
        self.arrived(message.arrival)
        return message.source, message.x

    def split(self, color: int, key: int | None = None) -> ThreadComm:
        place, wishes = self.meet("to split", (color, self.rank if key is None else key))
        self.parts.free(self.parts.idle())  # each rank by itself: its threads are its own
        ranks = [r for _, r in sorted((k, r) for r, (c, k) in wishes.items() if c == color)]
        return self.of(ranks.index(self.rank), [self.members[r] for r in ranks], (*place, color)).part_of(
            self
        )

    def background(self) -> ThreadBackground:
        with self.world.lock:
            number = self.world.join(self.world.owners[self.me])
            self.joined()
        place, numbers = self.meet("to open a background", number)
        self.parts.free(self.parts.idle())
        comm = self.of(self.rank, [numbers[r] for r in range(self.size)], place)
        return ThreadBackground(ThreadWorker(comm, self.me)).part_of(self)

    def close(self) -> None:
        self.parts.close()
        self.closed = True

    def watch(self, ranks: Iterable[int], owing: object = None) -> None:
        """From now on ``recv_any`` raises RankEnded where one of ``ranks`` has returned.

        A thread that is silent cannot be ended; so of those ``owing`` something nothing is known.
        """
        self.watched = sorted(ranks)

    share = share_among_threads

    def of(self, rank: int, members: list[int], group: Hashable) -> Self:
        """The communicator of a group of this one's ranks, or of their backgrounds."""
        group_comm = self.made(rank, members, group)
        group_comm.started = self.started
        return group_comm

    def made(self, rank: int, members: list[int], group: Hashable) -> Self:
        return type(self)(self.world, rank, members, group)

    # What the above is made of

    def ended(self) -> list[int]:
        return [rank for rank in self.watched if self.members[rank] not in self.world.running]

    def meet(self, what: str, wish: Any = None) -> tuple[tuple[Hashable, ...], dict[int, Any]]:
        """Wait for all ranks to come here: a name for what they do, and what each of them wishes."""
        self.meetings += 1
        place = (self.group, self.meetings, what)
        with self.world.lock:
            wishes = self.world.meetings.setdefault(place, {})
            wishes[self.rank] = wish
            if len(wishes) == self.size:
                del self.world.meetings[place]
                self.world.ring_all()
            absent = (m for r, m in enumerate(self.members) if r not in wishes)
            self.world.block(self.me, Wait(f"for all ranks {what}", lambda: len(wishes) == self.size, absent))
        return place, wishes

    def deliver(self, x: Array, to: int, tag: int) -> Message:
        check_peer(self, to)
        copy = array_module(x).array(x)
        arrival = self.departed(copy.nbytes, self.members[to], tag)
        message = Message(copy, self.rank, self.me, arrival, caller())
        with self.world.lock:
            self.world.check(self.me)
            self.world.put((self.group, to, tag), message, self.members[to])
        return message

    def post(self, source: int, tag: int):
        check_peer(self, source)
        with self.world.lock:
            return self.world.post((self.group, self.rank, tag), source)

    def finish_recv(self, slot, source: int, tag: int, like: Array | None) -> Array:
        peer, owners = self.members[source], self.world.owners
        what = f"to receive from {self.name(source)} (tag {tag})"
        with self.world.lock:
            wait = Wait(what, lambda: slot.message is not None, [peer], lambda: slot.message.arrival)
            self.world.block(self.me, wait)
        self.arrived(slot.message.arrival)
        return check_like(slot.message.x, like, owners[peer], owners[self.me], tag)

    def until_taken(self, message: Message, to: int, tag: int) -> Wait:
        peer = self.members[to]
        what = f"to send to {self.name(to)} (tag {tag})"
        return Wait(what, lambda: message.taken, [peer], lambda: message.arrival)

    def name(self, rank: int) -> str:
        return self.world.names[self.members[rank]]

    def turn(self) -> Wait:
        return Wait("for its turn", lambda: True)

    def note(self, what: str) -> Callable[[], None]:
        """Remember that ``what`` was started; the function returned forgets it."""
        key = object()
        self.started[key] = f"{self.world.names[self.me]} never finished {what} that it started at {caller()}"

        def done() -> None:
            self.started.pop(key, None)

        return done

    def departed(self, nbytes: int, to: int, tag: int) -> float:
        """When a message that leaves now arrives, on the virtual clock."""
        return 0.0

    def now(self) -> float:
        """The virtual clock, where there is one."""
        return 0.0

    def arrived(self, at: float) -> None:
        """Told when, on the virtual clock, what this rank waited for happened."""

    def joined(self) -> None:
        """Told that a background of this rank joined the world."""


def run_ranks(
    n: int,
    fn: Callable[[ThreadComm], Result],
    *,
    rendezvous: bool = False,
    seed: int | None = None,
    rank_0_here: bool = False,
) -> list[Result]:
    """Run ``fn(comm)`` on ``n`` ranks, each a thread, and return what they returned, by rank.

    With ``rendezvous`` a send waits for its receiver, so that what only buffering saves from deadlock
    shows. With a ``seed`` one rank runs at a time, in turns drawn from it: the same every time. With
    ``rank_0_here`` rank 0 runs on the calling thread, so what interrupts that is raised in rank 0's program.

    An exception in one rank ends the others at their next communication, and is the one the caller
    sees. Raises Deadlock, drawn, as soon as no rank can go on; RuntimeError for messages never
    received and started communications never finished.
    """
    turns = None if seed is None else seeded_turns(seed)
    world = World(positive(n), rendezvous=rendezvous, turns=turns)
    return run_world(world, fn, lambda rank: ThreadComm(world, rank, list(range(n))), rank_0_here)


def run_world(
    world: World,
    fn: Callable[[Any], Result],
    comm_of: Callable[[int], ThreadComm],
    rank_0_here: bool = False,
) -> list[Result]:
    """Run ``fn`` on a thread for each rank of ``world``; see ``run_ranks``."""
    n = world.size
    comms = [comm_of(rank) for rank in range(n)]
    results: list[Any] = [None] * n
    errors: list[BaseException | None] = [None] * n

    def work(rank: int) -> None:
        try:
            world.start(rank)
            results[rank] = fn(comms[rank])
        except BaseException as error:
            errors[rank] = error
        world.leave(rank, failed=errors[rank] is not None)

    ranks = range(int(rank_0_here), n)
    threads = [threading.Thread(target=work, args=(r,), name=f"rank {r}", daemon=True) for r in ranks]
    for thread in threads:
        thread.start()
    if rank_0_here:
        work(0)
        if errors[0] is not None and not isinstance(errors[0], Exception):
            raise errors[0]  # interrupted: the others end at their next communication, or with the process
    for thread in threads:
        thread.join()
    for thread in world.threads:  # a background ends after its rank
        thread.join()
    for rank in [] if world.failed is None else [world.failed]:
        raise errors[rank] or RuntimeError(f"rank {rank} failed")
    if world.deadlock is not None:
        raise Deadlock(world.deadlock)
    report_leftovers(world, [comm.started for comm in comms])
    return results


def positive(n: int) -> int:
    if n < 1:
        raise ValueError(f"there must be at least 1 rank, got {n}")
    return n
