"""What thread ranks share: letter boxes, who waits for what, and whose turn it is.

A rank that cannot go on says what it waits for. When every rank that still runs waits for something
that has not happened, nothing ever will: that is a deadlock, known at once and drawn for each rank.
"""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from minigrad.device import Array

from .protocol import wait_limit

Box = tuple[Hashable, int, int]  # (group, destination, tag)
HERE = os.path.dirname(__file__)
PLACE: ContextVar[str] = ContextVar("PLACE", default="")


class RankFailed(RuntimeError):
    """Another rank raised; this one cannot go on."""


class Deadlock(RuntimeError):
    """Every rank waits for another; the message says which, for whom, with which tag, at which line."""


@dataclass(eq=False)
class Message:
    """An array on its way: ``source`` is a rank of the group, ``sender`` the same rank of the world."""

    x: Array
    source: int
    sender: int
    arrival: float
    where: str
    taken: bool = False


@dataclass(eq=False)
class Slot:
    """A receive that was posted: the first message of its source fills it."""

    source: int
    message: Message | None = None


@dataclass
class Wait:
    """What a rank waits for: ``ready`` says whether it has happened, ``at`` when on the virtual clock."""

    what: str
    ready: Callable[[], bool]
    peers: Iterable[int] = ()
    at: Callable[[], float] = lambda: 0.0
    where: str = ""
    idle: bool = False  # for work: who has none may wait for ever, and is no part of a deadlock
    since: float = field(default_factory=time.monotonic)


Turns = Callable[["World", list[int]], int]
"""Chooses which of the ranks that can go on does; only one runs at a time."""


def seeded_turns(seed: int) -> Turns:
    """Turns drawn from ``seed``: another interleaving for each, the same one every time."""
    draw = random.Random(seed)
    return lambda world, able: draw.choice(sorted(able))


class World:
    """The state behind the communicators of ``size`` thread ranks; every field is guarded by ``lock``."""

    def __init__(self, size: int, *, rendezvous: bool = False, turns: Turns | None = None):
        self.size, self.rendezvous, self.turns = size, rendezvous, turns
        self.limit = wait_limit()
        self.lock = threading.Lock()
        self.bells = [threading.Condition(self.lock) for _ in range(size)]
        self.names = [f"rank {rank}" for rank in range(size)]
        self.owners = list(range(size))  # the rank for which each participant acts
        self.threads: list[threading.Thread] = []  # of the backgrounds
        self.boxes: dict[Box, list[Message]] = {}
        self.slots: dict[Box, list[Slot]] = {}
        self.meetings: dict[Hashable, dict[int, Any]] = {}
        self.waits: dict[int, Wait] = {}
        self.running = set(range(size))
        self.failed: int | None = None
        self.deadlock: str | None = None
        self.turn: int | None = None
        if turns is not None:
            self.waits = {rank: Wait("for its first turn", lambda: True) for rank in range(size)}
            self.turn = turns(self, list(range(size)))

    def join(self, owner: int) -> int:
        """The number, beyond the ranks', of a new background of rank ``owner``; it runs when admitted."""
        count = self.owners.count(owner)
        self.names.append(f"rank {owner}'s background" + (f" {count}" if count > 1 else ""))
        self.owners.append(owner)
        self.bells.append(threading.Condition(self.lock))
        return len(self.bells) - 1

    def admit(self, thread: threading.Thread, number: int) -> None:
        """From now on participant ``number``, which runs on ``thread``, counts among those who run."""
        self.threads.append(thread)
        self.running.add(number)
        if self.turns is not None:
            self.waits[number] = Wait("for its first turn", lambda: True)

    # Messages

    def put(self, box: Box, message: Message, destination: int) -> None:
        """Deliver to the first posted receive that fits, else into the box; wake ``destination``."""
        slots = self.slots.get(box, [])
        slot = next((s for s in slots if s.source == message.source), None)
        if slot is None:
            self.boxes.setdefault(box, []).append(message)
        else:
            slots.remove(slot)
            slot.message, message.taken = message, True
            self.bells[message.sender].notify_all()
        self.bells[destination].notify_all()

    def post(self, box: Box, source: int) -> Slot:
        """Post a receive from ``source``; it is filled at once where a message is there."""
        waiting = self.boxes.get(box, [])
        slot = Slot(source, next((m for m in waiting if m.source == source), None))
        if slot.message is None:
            self.slots.setdefault(box, []).append(slot)
        else:
            self.take(box, slot.message)
        return slot

    def take(self, box: Box, message: Message) -> Message:
        """Take ``message`` out of ``box``."""
        self.boxes[box].remove(message)
        if not self.boxes[box]:
            del self.boxes[box]
        message.taken = True
        self.bells[message.sender].notify_all()
        return message

    # Waiting

    def block(self, rank: int, wait: Wait) -> None:
        """Return when ``wait`` is ready and, where ranks take turns, it is this rank's.

        Raises Deadlock, RankFailed, or TimeoutError after ``wait_limit()`` seconds.
        """
        if self.turns is None and wait.ready():
            return
        wait.where = wait.where or caller()
        self.waits[rank] = wait
        try:
            self.look_around()
            while not (wait.ready() if self.turns is None else self.turn == rank):
                self.check(rank)
                left = None if wait.idle else self.limit - (time.monotonic() - wait.since)
                if left is not None and left <= 0:
                    raise TimeoutError(
                        f"{self.names[rank]} waited {self.limit:g} s {wait.what} at {wait.where}; check "
                        "that the other side does its part, or raise MINIGRAD_TIMEOUT"
                    )
                self.bells[rank].wait(left)
            self.check(rank)
        finally:
            self.waits.pop(rank, None)

    def start(self, rank: int) -> None:
        """Wait for the first turn, where ranks take turns."""
        with self.lock:
            while self.turns is not None and self.turn != rank:
                self.check(rank)
                self.bells[rank].wait(self.limit)
            self.waits.pop(rank, None)

    def leave(self, rank: int, failed: bool) -> None:
        """``rank`` has returned or raised."""
        with self.lock:
            self.running.discard(rank)
            if failed and self.failed is None and self.deadlock is None:
                self.failed = rank
            self.look_around()
            self.ring_all()  # to who watches for it, and to its idle background, which ends

    def check(self, rank: int) -> None:
        if self.deadlock is not None:
            raise Deadlock(self.deadlock)
        if self.failed is not None:
            raise RankFailed(f"{self.names[rank]} cannot go on: rank {self.failed} failed")

    def look_around(self) -> None:
        """Give the turn to one that can go on; where there is none, and nobody runs, say so to all."""
        if self.deadlock is not None or self.failed is not None:
            return
        if self.turns is None and len(self.waits) < len(self.running):
            return
        able = [rank for rank, wait in self.waits.items() if wait.ready()]
        if able:
            if self.turns is not None:
                self.turn = self.turns(self, able)
                self.bells[self.turn].notify_all()
        elif not all(wait.idle for wait in self.waits.values()):
            self.deadlock = self.graph()
            self.ring_all()

    def ring_all(self) -> None:
        for bell in self.bells:
            bell.notify_all()

    def graph(self) -> str:
        """Who waits for whom, a line for each who waits, and the circle if there is one."""
        lines = ["deadlock: no rank can go on"]
        for number, name in enumerate(self.names):
            if wait := self.waits.get(number):
                lines.append(f"  {name} waits {wait.what} at {wait.where}")
            elif number < self.size:
                lines.append(f"  {name} has returned")
        if circle := self.circle():
            lines.append(
                "  circle: " + " -> ".join(str(n) if n < self.size else self.names[n] for n in circle)
            )
        return "\n".join(lines)

    def circle(self) -> list[int]:
        """Who waits for one another in a ring, the first repeated at the end; empty where nobody does."""
        for start in sorted(self.waits):
            path: list[int] = []
            peer: int | None = start
            while peer is not None and peer not in path:
                path.append(peer)
                wait = self.waits.get(peer)
                peer = None if wait is None else next(iter(wait.peers), None)
            if peer is not None:
                return [*path[path.index(peer) :], peer]
        return []


@contextmanager
def elsewhere(place: str) -> Iterator[None]:
    """Within it ``caller`` says ``place``: the rank's own program waits there, in another process."""
    token = PLACE.set(place)
    try:
        yield
    finally:
        PLACE.reset(token)


def caller() -> str:
    """File and line of the nearest frame outside this package: where the rank's own program waits."""
    if place := PLACE.get():
        return place
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(HERE):
        frame = frame.f_back
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
