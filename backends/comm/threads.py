"""Ranks as threads of one process: messages through mailboxes, and a thread for a rank's background."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, Self

import numpy as np

from minigrad.device import Array, array_module

from .background import Background, Job, Worker
from .collectives.send_recv import check_peer
from .communicator import NOTHING, Communicator, RankEnded, check_expected
from .gpu import check_one_stream
from .mailboxes import Message, Slot, Wait, World, caller
from .parts import Part, Parts
from .shared_memory import SharedMemory


class ThreadComm(Communicator, Part):
    """One thread's end of a communicator.

    ``started`` holds a text for each communication that was started and not finished.
    """

    def __init__(self, world: World, rank: int, members: list[int], group: Hashable = ()):
        self.world, self.rank, self.members, self.group = world, rank, members, group
        self.size, self.world_rank = len(members), members[rank]
        self.barriers, self.watched = 0, list[int]()
        self.started: dict[object, str] = {}  # also of the groups and backgrounds made from this
        self.parts = Parts()

    def send(self, x: Array, to: int, tag: int = 0) -> None:
        message = self.deliver(x, to, tag)
        if self.world.rendezvous:
            self.wait_for(self.until_taken(message, to, tag))
        elif self.world.turns is not None:
            self.wait_for(self.turn())

    def start_send(self, x: Array, to: int, tag: int = 0) -> Callable[[], None]:
        message = self.deliver(x, to, tag)
        forget = self.remember_pending(f"the send to {self.name(to)} (tag {tag})")

        def finish() -> None:
            forget()
            if self.world.rendezvous:
                self.wait_for(self.until_taken(message, to, tag))

        return finish

    def recv(self, source: int, tag: int = 0, expect: Array | None = None) -> Array:
        return self.finish_recv(self.post(source, tag), source, tag, expect)

    def start_recv(self, source: int, tag: int = 0, expect: Array | None = None) -> Callable[[], Array]:
        slot = self.post(source, tag)
        forget = self.remember_pending(f"the receive from {self.name(source)} (tag {tag})")

        def finish() -> Array:
            forget()
            return self.finish_recv(slot, source, tag, expect)

        return finish

    def recv_any(self, tag: int = 0) -> tuple[int, Array]:
        world, mailbox = self.world, (self.group, self.rank, tag)
        others = [m for m in self.members if m != self.world_rank]
        wait = Wait(
            f"to receive from any rank (tag {tag})",
            lambda: mailbox in world.mailboxes or bool(self.ended_ranks()),
            others,
            lambda: min((m.arrival for m in world.mailboxes.get(mailbox, ())), default=0.0),
        )
        self.wait_for(wait)
        with world.lock:
            if mailbox not in world.mailboxes:
                raise RankEnded(self.ended_ranks()[0], wait.what)
            message = world.take(mailbox, min(world.mailboxes[mailbox], key=lambda m: m.arrival))
        return message.source, self.accept(message)

    def split(self, color: int, key: int | None = None) -> Self:
        name, choices = self.barrier_with("to split", (color, self.rank if key is None else key))
        self.parts.free(self.parts.idle())  # each rank by itself: its threads are its own
        ranks = [r for _, r in sorted((k, r) for r, (c, k) in choices.items() if c == color)]
        members = [self.members[r] for r in ranks]
        return self.group_of(ranks.index(self.rank), members, (*name, color)).part_of(self)

    def background(self) -> Background:
        with self.world.lock:
            number = self.world.add_participant(self.world.owners[self.world_rank])
            self.add_clock()
        name, numbers = self.barrier_with("to open a background", number)
        self.parts.free(self.parts.idle())
        comm = self.group_of(self.rank, [numbers[r] for r in range(self.size)], name)
        return Background(ThreadWorker(comm, self.world_rank)).part_of(self)

    def progress(self) -> None:
        """Let another rank take its turn; raises RankFailed if the program of another rank has failed."""
        with self.world.lock:
            self.world.check(self.world_rank)
        if self.world.turns is not None:
            self.wait_for(self.turn())

    def close(self) -> None:
        self.parts.close()

    def watch(self, ranks: Iterable[int], owing: Mapping[int, int] = NOTHING) -> None:
        """From now on ``recv_any`` raises RankEnded if one of ``ranks`` has returned.

        A silent thread cannot be killed, so ``owing`` changes nothing.
        """
        self.watched = sorted(ranks)

    def use_synchronous_sends(self) -> None:
        self.world.rendezvous = True

    def share(self, nbytes: int) -> SharedMemory | None:
        _, parts = self.barrier_with("to share memory", np.zeros(nbytes, np.uint8))
        ordered = [parts[rank] for rank in range(self.size)]
        return SharedMemory(ordered, self.barrier_with, ordered[0].ctypes.data)

    # Helpers of the above

    def group_of(self, rank: int, members: list[int], group: Hashable) -> Self:
        """The communicator of a group of this one's ranks, or of their backgrounds."""
        comm = type(self)(self.world, rank, members, group)
        comm.started = self.started
        return comm

    def ended_ranks(self) -> list[int]:
        return [rank for rank in self.watched if self.members[rank] not in self.world.running]

    def barrier_with(self, what: str, value: Any = None) -> tuple[tuple[Hashable, ...], dict[int, Any]]:
        """Wait for all ranks to call this; returns a unique name for the barrier, and the ranks' values."""
        self.barriers += 1
        name = (self.group, self.barriers, what)
        with self.world.lock:
            values = self.world.barriers.setdefault(name, {})
            values[self.rank] = value
            if len(values) == self.size:
                del self.world.barriers[name]
                self.world.notify_all()
        absent = (m for r, m in enumerate(self.members) if r not in values)
        self.wait_for(Wait(f"for all ranks {what}", lambda: len(values) == self.size, absent))
        return name, values

    def deliver(self, x: Array, to: int, tag: int) -> Message:
        check_peer(self, to)
        if array_module(x) is not np:
            check_one_stream()
        copy = array_module(x).array(x)
        arrival = self.arrival_time(copy.nbytes, self.members[to], tag)
        message = Message(copy, self.rank, self.world_rank, arrival, caller())
        with self.world.lock:
            self.world.check(self.world_rank)
            self.world.put((self.group, to, tag), message, self.members[to])
        return message

    def post(self, source: int, tag: int) -> Slot:
        check_peer(self, source)
        with self.world.lock:
            return self.world.post((self.group, self.rank, tag), source)

    def finish_recv(self, slot: Slot, source: int, tag: int, expect: Array | None) -> Array:
        peer, owners = self.members[source], self.world.owners
        what = f"to receive from {self.name(source)} (tag {tag})"
        self.wait_for(Wait(what, lambda: slot.message is not None, [peer], lambda: slot.filled().arrival))
        x = self.accept(slot.filled())
        return check_expected(x, expect, owners[peer], owners[self.world_rank], tag)

    def accept(self, message: Message) -> Array:
        """What came, where this thread computes: a copy only if the sender computes on another GPU."""
        self.advance_clock(message.arrival)
        return array_module(message.x).asarray(message.x)

    def wait_for(self, wait: Wait) -> None:
        with self.world.lock:
            self.world.wait_for(self.world_rank, wait)

    def until_taken(self, message: Message, to: int, tag: int) -> Wait:
        peer = self.members[to]
        what = f"to send to {self.name(to)} (tag {tag})"
        return Wait(what, lambda: message.taken, [peer], lambda: message.arrival)

    def name(self, rank: int) -> str:
        return self.world.names[self.members[rank]]

    def turn(self) -> Wait:
        return Wait("for its turn", lambda: True)

    def remember_pending(self, what: str) -> Callable[[], None]:
        """Record that ``what`` was started; the function returned removes the record."""
        key = object()
        name = self.world.names[self.world_rank]
        self.started[key] = f"{name} never finished {what} that it started at {caller()}"

        def forget() -> None:
            self.started.pop(key, None)

        return forget

    # The virtual clock, which ``VirtualComm`` has

    def arrival_time(self, nbytes: int, to: int, tag: int) -> float:
        """When a message that leaves now arrives."""
        return 0.0

    def advance_clock(self, to: float) -> None:
        """Set this rank's clock to the time of the event it waited for, unless it is later already."""

    def add_clock(self) -> None:
        """Make a clock for a new background of this rank."""


class ThreadWorker(Worker):
    """The communication thread of a thread rank: a participant of the world.

    On the virtual clock a job of c seconds ends c seconds after it was posted, or after the job before it
    ended if that is later; a rank that waits for it continues then, or later.
    """

    comm: ThreadComm

    def __init__(self, comm: ThreadComm, owner: int):
        super().__init__(comm, comm.world.names[comm.world_rank])
        self.world, self.owner, self.opened = comm.world, owner, caller()
        self.jobs: deque[Job] = deque()
        with self.world.lock:
            self.world.admit(self.thread, comm.world_rank)
        self.thread.start()

    def work(self) -> None:
        try:
            self.world.start(self.comm.world_rank)
            super().work()
        except self.world.endings:
            pass  # the rank raises it too
        finally:
            self.world.leave(self.comm.world_rank, failed=False)

    def next_job(self) -> Job | None:
        jobs, rank, world = self.jobs, self.owner, self.world
        with world.lock:
            wait = Wait(
                "for work" + (f" after {self.error!r}" if self.error is not None else ""),
                lambda: bool(jobs) or self.closed or rank not in world.running,
                [rank],
                lambda: jobs[0].posted if jobs else 0.0,
                self.opened,
                idle=True,
            )
            world.wait_for(self.comm.world_rank, wait)
            job = jobs.popleft() if jobs else None
        if job is not None:
            self.comm.advance_clock(job.posted)
        return job

    def end(self, job: Job) -> None:
        with self.world.lock:
            job.done = self.comm.time()
            job.ended.set()
            self.world.conditions[self.owner].notify_all()

    def post(self, job: Job, rank: ThreadComm) -> None:
        with self.world.lock:
            self.world.check(self.owner)
            job.posted = rank.time()
            self.jobs.append(job)
            self.world.conditions[self.comm.world_rank].notify_all()
            if self.world.turns is not None:
                self.world.wait_for(self.owner, rank.turn())

    def wait_for(self, job: Job, rank: ThreadComm) -> None:
        what = f"for its background to finish {job.what}"
        rank.wait_for(Wait(what, job.ended.is_set, [self.comm.world_rank], lambda: job.done))
        rank.advance_clock(job.done)

    def close(self) -> None:
        with self.world.lock:
            self.closed = True
            self.world.conditions[self.comm.world_rank].notify_all()
