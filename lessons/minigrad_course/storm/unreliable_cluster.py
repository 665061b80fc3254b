"""Ranks on a virtual clock, whose hosts stop and whose links are cut.

Nothing sleeps. Every communication and every operation on the disk is an event with a time. The rank with
the earliest event runs next, so the order of events follows from the seed alone. A wait ends with a message,
with the death of its process, or with the time limit of a real wait.

Lecture section: parallelism at scale, what fails.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from math import inf
from typing import Any, TypeVar

from backends.comm.mailboxes import Wait, caller
from minigrad_course.machines.virtual_cluster import VirtualCluster, VirtualComm, VirtualWorld

from .fault import Fault

Result = TypeVar("Result")

LIMIT = 600.0  # seconds after which a wait gives up, the default of MINIGRAD_TIMEOUT
NOTICE = 2.0  # seconds within which the launcher ends all ranks after one of them
SECONDS = {"forward": 0.2, "backward": 0.4, "update": 0.2}  # that a rank computes; of micro-batches, each


class Killed(BaseException):
    """The process of this thread has ended: each communication and each operation on the disk raises it.

    It is no Exception, so programs do not handle it; what a ``finally`` does reaches nobody.
    """


@dataclass
class UnreliableCluster(VirtualCluster):
    """A cluster with ``faults``, on which a job is started at ``begin`` and ended when a rank has failed.

    ``notice`` is the number of seconds in which the launcher ends the other ranks; ``horizon`` the time at
    which it ends a job in any case.
    """

    faults: Sequence[Fault] = ()
    notice: float = NOTICE
    horizon: float = inf
    kills: dict[int, float] = field(default_factory=dict)

    def attempt(
        self, start: float, kills: Mapping[int, float], fn: Callable[[UnreliableComm], Result]
    ) -> list[Result]:
        """Run ``fn(comm)`` on every rank from ``start``; ``kills`` are the times at which processes end.

        Raises the error of the first rank that failed; ``seconds`` is then the time at which all had ended.
        """
        self.kills = dict(kills)
        self.begin(start)
        return self.run_in(UnreliableWorld(self), UnreliableComm, fn)

    def resumed(self, rank: int, time: float) -> float:
        """When an event of a rank happens, whose host may be paused then."""
        for fault in self.faults:
            if fault.kind == "pause" and fault.rank == rank and fault.at <= time < fault.end:
                time = fault.end
        return time

    def transfer(self, source: int, destination: int, nbytes: int, tag: int, now: float) -> float:
        stop = super().transfer(source, destination, nbytes, tag, now)
        for fault in self.faults:
            if source == destination or not fault.at <= stop or not now < fault.end:
                continue
            if fault.kind == "slow link" and fault.rank in (source, destination):
                stop = max(stop, now + (stop - now) * fault.factor)
            elif (
                fault.kind == "partition"
                and len({r in fault.group(self.size) for r in (source, destination)}) == 2
            ):
                stop = max(stop, fault.end + self.link.seconds(nbytes))
        return stop


class UnreliableWorld(VirtualWorld):
    """The state of one attempt; a participant of a rank, such as its background, dies with the rank."""

    endings = (*VirtualWorld.endings, Killed)

    def __init__(self, cluster: UnreliableCluster):
        self.deaths = [cluster.kills.get(rank, inf) for rank in range(cluster.size)]
        self.end = cluster.horizon  # when the launcher ends all ranks
        self.dead: set[int] = set()  # ranks whose death has happened
        self.since: dict[int, float] = {}  # when each wait that has a limit began
        super().__init__(cluster)
        self.cluster: UnreliableCluster = cluster
        self.limit = LIMIT

    def death(self, number: int) -> float:
        return min(self.deaths[self.owners[number]], self.end)

    def ready_at(self, rank: int) -> float:
        """When the next event of a participant happens: the end of its wait, or its death."""
        wait, clock = self.waits[rank], self.clocks[rank]
        limit = self.since.get(rank, inf) + self.limit
        at = min(max(clock, wait.at()), limit) if wait.ready() else limit
        return min(self.cluster.resumed(self.owners[rank], at), self.death(rank))

    def wait_for(self, rank: int, wait: Wait) -> None:
        self.check(rank)
        if not wait.idle:
            self.since[rank] = self.clocks[rank]
            wait.where = caller()
        self.waits[rank] = wait
        self.check_deadlock()
        self.await_turn(rank)

    def start(self, rank: int) -> None:
        with self.lock:
            self.await_turn(rank)

    def await_turn(self, number: int) -> None:
        """Wait for this participant's next event, set its clock to it, and raise what it is, if it is bad."""
        while self.turn != number:
            self.conditions[number].wait()
        at, wait = self.ready_at(number), self.waits.pop(number)
        self.since.pop(number, None)
        self.clocks[number] = at
        if at >= self.death(number):
            self.dead.add(self.owners[number])
            self.deaths[self.owners[number]] = min(at, self.deaths[self.owners[number]])
        self.check(number)
        if not (wait.ready() and wait.at() <= at):
            raise TimeoutError(f"{self.names[number]} waited {LIMIT:g} s {wait.what} at {wait.where}")

    def check(self, rank: int) -> None:
        if self.owners[rank] in self.dead:
            raise Killed(f"{self.names[rank]} was killed")

    def check_deadlock(self) -> None:
        """Give the turn to the participant with the earliest event."""
        if self.waits:
            self.turn = min(self.waits, key=lambda number: (self.ready_at(number), number))
            self.conditions[self.turn].notify_all()

    def leave(self, rank: int, failed: bool) -> None:
        with self.lock:
            self.running.discard(rank)
            if failed:
                now = self.clocks[rank]
                self.failed = rank if self.failed is None else self.failed
                self.deaths[rank] = min(now, self.deaths[rank])
                self.dead.add(rank)
                self.end = min(self.end, now + self.cluster.notice)
            self.check_deadlock()


class UnreliableComm(VirtualComm):
    """A rank's end of a communicator in such a cluster."""

    world: UnreliableWorld  # pyright: ignore[reportIncompatibleVariableOverride]

    def barrier_with(self, what: str, value: Any = None):
        with self.world.lock:
            self.world.check(self.world_rank)
        return super().barrier_with(what, value)

    @contextmanager
    def computing(self, name: str) -> Iterator[None]:
        """On leaving it, the computing named ``name`` has taken its seconds."""
        yield
        self.compute(SECONDS.get(name.split()[0], 0.0))

    def start_thread(self, job: Callable[[], None]) -> Callable[[], None]:
        """Run ``job`` on a thread of this process, with its own clock; the function waits for its end."""
        world, ended = self.world, threading.Event()
        with world.lock:
            number = world.add_participant(world.owners[self.world_rank])
            self.add_clock()

        def work() -> None:
            THREAD.set(number)
            try:
                world.start(number)
                job()
            except Killed:
                pass  # the rank raises it too
            finally:
                ended.set()
                world.leave(number, failed=False)

        thread = threading.Thread(target=work, name=world.names[number], daemon=True)
        with world.lock:
            world.admit(thread, number)
        thread.start()
        at = lambda: world.clocks[number]  # noqa: E731
        return lambda: self.wait_for(Wait("for its thread to end", ended.is_set, at=at, idle=True))


THREAD: ContextVar[int | None] = ContextVar("THREAD", default=None)
"""The number of the participant on a thread that a rank's process has started; None on the rank's own."""
