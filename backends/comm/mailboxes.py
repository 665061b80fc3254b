"""The state that thread ranks share: mailboxes, what each rank waits for, and whose turn it is.

A rank that cannot continue records what it waits for. When every running rank waits for something that has
not happened, no rank can ever continue: the deadlock is detected at once, and its error shows every rank.
"""

from __future__ import annotations

import os
import random
import sys
import threading
import time
import traceback
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from minigrad.device import Array

from ..process.hang_report import HangReport, RankState, frames_of_threads, place_in
from .communicator import wait_limit

Mailbox = tuple[Hashable, int, int]  # (group, destination, tag)
HERE = os.path.dirname(__file__)
PLACE: ContextVar[str] = ContextVar("PLACE", default="")


class RankFailed(RuntimeError):
    """Another rank raised an exception, so this one cannot continue."""


class RankStacks(Exception):
    """The Python stack of every rank, as a text: the cause that a traceback shows before a hang."""


class Hang(Exception):
    """Ranks wait for one another; the message names ranks, peers, tags and the lines of the calls."""

    def __init__(self, text: str, stacks: str):
        super().__init__(text)
        self.stacks = stacks
        self.__cause__ = RankStacks(stacks)


class Deadlock(Hang, RuntimeError):
    """Every rank waits for another."""


class WaitTimeout(Hang, TimeoutError):
    """A rank waited too long; the message says what every rank does."""


@dataclass(eq=False)
class Message:
    """An array in transit: ``source`` is a rank of the group, ``sender`` the same rank of the world."""

    x: Array
    source: int
    sender: int
    arrival: float
    where: str
    taken: bool = False


@dataclass(eq=False)
class Slot:
    """A posted receive: the first message from its source fills it."""

    source: int
    message: Message | None = None

    def filled(self) -> Message:
        assert self.message is not None
        return self.message


@dataclass
class Wait:
    """A condition that a rank waits for: ``ready`` tests it, ``at`` is its time on the virtual clock."""

    what: str
    ready: Callable[[], bool]
    peers: Iterable[int] = ()
    at: Callable[[], float] = lambda: 0.0
    where: str = ""
    idle: bool = False  # a background without a job: it may wait for ever, and is no part of a deadlock
    since: float = field(default_factory=time.time)
    start: float = field(default_factory=time.monotonic)


Turns = Callable[["World", list[int]], int]
"""Chooses which of the ranks that can continue runs next; only one runs at a time."""


def seeded_turns(seed: int) -> Turns:
    """Turns drawn at random: each ``seed`` gives another interleaving, the same in every run."""
    draw = random.Random(seed)
    return lambda world, ready: draw.choice(sorted(ready))


class World:
    """The state of the communicators of ``size`` thread ranks; every field is guarded by ``lock``.

    ``endings`` are what the waits of a background raise when its rank cannot continue, and raises too.
    ``revoked`` holds the groups that were revoked, and ``decisions`` what living ranks decide together, by
    group and number.
    """

    endings: tuple[type[BaseException], ...] = (RankFailed, Deadlock)

    def __init__(self, size: int, *, rendezvous: bool = False, turns: Turns | None = None):
        self.size, self.rendezvous, self.turns = size, rendezvous, turns
        self.limit = wait_limit()
        self.lock = threading.Lock()
        self.conditions = [threading.Condition(self.lock) for _ in range(size)]
        self.names = [f"rank {rank}" for rank in range(size)]
        self.owners = list(range(size))  # the rank to which each participant belongs
        self.threads: list[threading.Thread] = []  # of the backgrounds
        self.mailboxes: dict[Mailbox, list[Message]] = {}
        self.slots: dict[Mailbox, list[Slot]] = {}
        self.barriers: dict[Hashable, dict[int, Any]] = {}
        self.waits: dict[int, Wait] = {}
        self.running = set(range(size))
        self.revoked: set[Hashable] = set()
        self.decisions: dict[Hashable, Any] = {}
        self.failed: int | None = None
        self.deadlock: str | None = None
        self.states = self.stacks = ""  # what the ranks did at the deadlock, or when a wait timed out
        self.threads_of: dict[int, int] = {}  # the number of each participant's thread, by Python's count
        self.timed_out: float | None = None  # when a rank gave up its wait
        self.turn: int | None = None
        if turns is not None:
            self.waits = {rank: Wait("for its first turn", lambda: True) for rank in range(size)}
            self.turn = turns(self, list(range(size)))

    def add_participant(self, owner: int) -> int:
        """Number a new background of rank ``owner``, after all ranks; ``admit`` lets it run."""
        count = self.owners.count(owner)
        self.names.append(f"rank {owner}'s background" + (f" {count}" if count > 1 else ""))
        self.owners.append(owner)
        self.conditions.append(threading.Condition(self.lock))
        return len(self.conditions) - 1

    def admit(self, thread: threading.Thread, number: int) -> None:
        """Count participant ``number``, which runs on ``thread``, among the running ones."""
        self.threads.append(thread)
        self.running.add(number)
        if self.turns is not None:
            self.waits[number] = Wait("for its first turn", lambda: True)

    # Messages

    def put(self, mailbox: Mailbox, message: Message, destination: int) -> None:
        """Deliver to the first posted receive that matches, or to the mailbox; wake ``destination``."""
        slots = self.slots.get(mailbox, [])
        slot = next((s for s in slots if s.source == message.source), None)
        if slot is None:
            self.mailboxes.setdefault(mailbox, []).append(message)
        else:
            slots.remove(slot)
            slot.message, message.taken = message, True
            self.conditions[message.sender].notify_all()
        self.conditions[destination].notify_all()

    def post(self, mailbox: Mailbox, source: int) -> Slot:
        """Post a receive from ``source``; it is filled at once if its message has arrived."""
        messages = self.mailboxes.get(mailbox, [])
        slot = Slot(source, next((m for m in messages if m.source == source), None))
        if slot.message is None:
            self.slots.setdefault(mailbox, []).append(slot)
        else:
            self.take(mailbox, slot.message)
        return slot

    def take(self, mailbox: Mailbox, message: Message) -> Message:
        """Remove ``message`` from ``mailbox`` and return it."""
        self.mailboxes[mailbox].remove(message)
        if not self.mailboxes[mailbox]:
            del self.mailboxes[mailbox]
        message.taken = True
        self.conditions[message.sender].notify_all()
        return message

    # Waiting

    def wait_for(self, rank: int, wait: Wait) -> None:
        """Return when ``wait`` is ready and, if ranks take turns, it is this rank's turn.

        Raises Deadlock, RankFailed, TimeoutError after ``wait_limit()`` seconds, and RuntimeError on a
        thread that is not the rank's: two waits of one rank would take each other's turns and messages.
        """
        if threading.get_ident() != self.threads_of[rank]:
            raise RuntimeError(
                f"the communicator of {self.names[rank]} was used on another thread, at {caller()}; a job in "
                "the background must use the communicator that it is given"
            )
        if self.turns is None and wait.ready():
            return
        wait.where = wait.where or caller()
        self.waits[rank] = wait
        try:
            self.check_deadlock()
            while not (wait.ready() if self.turns is None else self.turn == rank):
                self.check(rank)
                remaining = None if wait.idle else self.limit - (time.monotonic() - wait.start)
                if remaining is not None and remaining <= 0:
                    raise self.timeout(rank, wait)
                self.conditions[rank].wait(remaining)
            self.check(rank)
        finally:
            self.waits.pop(rank, None)

    def start(self, rank: int) -> None:
        """Wait for the first turn, if ranks take turns."""
        with self.lock:
            self.threads_of[rank] = threading.get_ident()
            while self.turns is not None and self.turn != rank:
                self.check(rank)
                self.conditions[rank].wait(self.limit)
            self.waits.pop(rank, None)

    def leave(self, rank: int, failed: bool) -> None:
        """Record that ``rank`` has returned or raised."""
        with self.lock:
            self.running.discard(rank)
            if failed and self.failed is None and self.deadlock is None:
                self.failed = rank
            self.check_deadlock()
            self.notify_all()  # wakes ranks that watch this one, and its idle background, which ends

    def gave_up(self, seconds: float) -> bool:
        """Whether a wait timed out these ``seconds`` ago: ranks that still run may never end."""
        return self.timed_out is not None and time.monotonic() - self.timed_out > seconds

    def check(self, rank: int) -> None:
        if self.deadlock is not None:
            raise Deadlock(self.deadlock, self.stacks)
        if self.failed is not None:
            raise RankFailed(f"{self.names[rank]} cannot go on: rank {self.failed} failed")

    def check_deadlock(self) -> None:
        """Give the turn to a rank that can continue; if none can and none runs, report a deadlock to all."""
        if self.deadlock is not None or self.failed is not None:
            return
        if self.turns is None and len(self.waits) < len(self.running):
            return
        ready = [rank for rank, wait in self.waits.items() if wait.ready()]
        if ready:
            if self.turns is not None:
                self.turn = self.turns(self, ready)
                self.conditions[self.turn].notify_all()
        elif not all(wait.idle for wait in self.waits.values()):
            peers = {number: list(wait.peers) for number, wait in self.waits.items()}
            report = self.hang_report(peers)
            circle = self.circle(peers)
            names = (str(n) if n < self.size else self.names[n] for n in circle)
            drawn = f"\n  circle: {' -> '.join(names)}" if circle else ""
            self.deadlock = f"deadlock: no rank can go on\n{report.text(times=False)}{drawn}"
            self.stacks = report.stacks
            self.notify_all()

    def notify_all(self) -> None:
        for condition in self.conditions:
            condition.notify_all()

    def timeout(self, rank: int, wait: Wait) -> WaitTimeout:
        """The error of a rank that gives up ``wait``: what all ranks did when the first one gave up."""
        if self.timed_out is None:
            self.timed_out = time.monotonic()
            report = self.hang_report({number: list(wait.peers) for number, wait in self.waits.items()})
            self.states, self.stacks = report.text(), report.stacks
        text = f"{self.names[rank]} waited {self.limit:g} s {wait.what} at {wait.where}"
        way_out = "check that the other side does its part, or raise MINIGRAD_TIMEOUT"
        return WaitTimeout(f"{text}; {way_out}\n{self.states}", self.stacks)

    def hang_report(self, peers: dict[int, list[int]]) -> HangReport:
        """What every rank does now, and the background of each that waits in it; ``peers`` of the waits."""
        frames = frames_of_threads()
        states, stacks = [], []
        for number, name in enumerate(self.names):
            frame = frames.get(self.threads_of.get(number, 0))
            wait, owner = self.waits.get(number), self.owners[number]
            if wait is not None:
                ranks = tuple(self.owners[peer] for peer in peers[number])
                states.append(RankState(owner, name, f"{wait.what} at {wait.where}", ranks, wait.since))
            elif number not in self.running and number < self.size:
                states.append(RankState(owner, name, over=True))
                continue
            elif number < self.size and frame is not None:
                at = [(one.filename, one.lineno or 0, one.name) for one in program_of(frame)]
                states.append(RankState(owner, name, place=place_in(at[::-1])))
            if frame is not None:
                stacks.append(f"{name}\n{''.join(program_of(frame).format())}")
        return HangReport(states, "\n".join(stacks))

    def circle(self, peers: dict[int, list[int]]) -> list[int]:
        """Ranks that wait for one another in a circle, the first repeated at the end; empty if none do."""
        for start in sorted(peers):
            path: list[int] = []
            peer: int | None = start
            while peer is not None and peer not in path:
                path.append(peer)
                peer = next(iter(peers.get(peer, [])), None)
            if peer is not None:
                return [*path[path.index(peer) :], peer]
        return []


def program_of(frame: FrameType) -> traceback.StackSummary:
    """The stack of a rank without the calls below its program, which started its thread."""
    stack = traceback.extract_stack(frame)
    below = [i for i, one in enumerate(stack) if one.name == "work" and one.filename.startswith(HERE)]
    return traceback.StackSummary.from_list(stack[below[-1] + 1 if below else 0 :])


@contextmanager
def elsewhere(place: str) -> Iterator[None]:
    """Let ``caller`` return ``place``, the line at which the rank's program waits in another process."""
    token = PLACE.set(place)
    try:
        yield
    finally:
        PLACE.reset(token)


def caller() -> str:
    """File and line of the nearest frame outside this package: the call in the rank's own program."""
    if place := PLACE.get():
        return place
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(HERE):
        frame = frame.f_back
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
