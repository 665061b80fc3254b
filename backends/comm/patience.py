"""Waiting for MPI with a bound: who gives up says what it waited for, and asks the others the same."""

from __future__ import annotations

import atexit
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from ..launch.rank import one_that_left
from .protocol import Comm, RankEnded, wait_limit
from .watch import UNDER_WAY, Watch
from .world import caller

SPINNING = 0.002  # seconds of polling without pause
GRACE = 1.0  # seconds for other ranks to say what they wait for, before the first one's error ends the job
WATCHING = 1.5  # times as long a rank that watches waits before it gives up
NOTHING: Mapping[int, int] = MappingProxyType({})
yield_core = getattr(os, "sched_yield", lambda: None)


class Patience:
    """The waits of one process, or of its ``background``.

    ``alarm`` is the tag, of ``world``, that says: I gave up, and you? ``idle_since`` is when the process
    stopped computing: while it waits for its background, that has the core for itself.
    """

    def __init__(self, world: Any, alarm: int, background: bool = False):
        self.world, self.alarm, self.rank = world, alarm, world.Get_rank()
        self.name = f"rank {self.rank}'s background" if background else f"rank {self.rank}"
        self.idle_since = math.inf if background else 0.0
        self.watch: Watch | None = None

    def wait(self, done: Callable, what: str, needs: Sequence[int] = ()):
        """Poll ``done()`` until it is true, at first without pause, then ever more seldom; what it returned.

        Raises TimeoutError after ``wait_limit()`` seconds, or when another rank has given up; RankEnded
        where a rank that is watched has ended, RuntimeError where the program of one of ``needs`` is over.
        """
        try:
            return self.poll(done, what, needs)
        except RankEnded:
            raise
        except RuntimeError as error:  # also MPI's: it cannot read from a process that was killed meanwhile
            if (rank := self.just_ended()) is None or self.watch is None:
                raise
            raise RankEnded(rank, what, self.watch.reason(rank)) from error

    def just_ended(self) -> int | None:
        """A watched rank that has ended, or ends within a second."""
        start = time.monotonic()
        while self.watch is not None and (now := time.monotonic()) < start + GRACE:
            if (rank := self.watch.ended(now, start)) is not None:
                return rank
            time.sleep(UNDER_WAY)
        return None

    def poll(self, done: Callable, what: str, needs: Sequence[int]):
        """``wait``, where MPI's own errors are raised as they are."""
        start, pause, looks = time.monotonic(), 0.0, 1
        while not (result := done()):
            now = time.monotonic()
            idle = now - max(start, self.idle_since)
            if 0 <= idle < SPINNING:  # ranks in step meet within this
                if idle > SPINNING / 40:
                    yield_core()
                continue
            if self.watch is not None and (rank := self.watch.ended(now, start)) is not None:
                raise RankEnded(rank, what, self.watch.reason(rank))
            self.check(what, now - start)
            if now - start > looks:
                looks += 1
                self.check_left(what, needs)
            # Leaves the core to those who compute. Most of what a background waits for moves on only when
            # it is looked at, so it is looked at more often.
            pause = min(pause + 20e-6, 1e-3) if idle >= 0 else min(max(5e-5, (now - start) / 40), 1e-3)
            time.sleep(pause)
        return result

    def watch_over(self, comm: Comm, ranks: Iterable[int], owing: Mapping[int, int] = NOTHING) -> None:
        """From now on a wait raises RankEnded where one of ``ranks`` of ``comm`` has ended.

        Those ``owing`` something, by its number, are ended where that does not come in ``wait_limit()``
        seconds. Only of ranks on this machine is that known. The first time all ranks call.
        """
        if self.watch is None:
            self.watch = Watch.over(comm)
        self.watch.ranks = set(ranks)
        self.watch.expect(owing)

    def close(self) -> None:
        """All went well: where a rank is missing by then, do without MPI's own end, which waits for all."""
        if self.watch is not None:
            atexit.register(self.watch.leave)

    def wait_for_thread(self, ended: Callable[[float], bool], what: str) -> None:
        """Sleep until ``ended(seconds)`` says that another thread of this process has done its part.

        That thread's own waits are bounded, and say more; so it may give up first.
        """
        start = time.monotonic()
        while not ended(0.05):
            self.check(what, time.monotonic() - start, extra=2 * GRACE)

    def check(self, what: str, waited: float, extra: float = 0.0) -> None:
        """Give up after ``wait_limit()`` and ``extra`` seconds, or when another rank has.

        Where ranks watch for one another's end, first those that are silent are ended.
        """
        others_gave_up = self.world.Iprobe(tag=self.alarm)
        if others_gave_up or waited > wait_limit() * (1 if self.watch is None else WATCHING) + extra:
            self.give_up(what, waited, tell=not others_gave_up)

    def check_left(self, what: str, needs: Sequence[int]) -> None:
        """Raise RuntimeError where the program of one of the ``needs`` is over: it does its part no more."""
        if (gone := one_that_left(needs)) is not None:
            raise RuntimeError(
                f"{self.name} waits {what} at {caller()}, but rank {gone}'s program is over; "
                "check that every rank makes the same calls, and none of them exits before"
            )

    def give_up(self, what: str, waited: float, tell: bool) -> None:
        """Say what this rank waits for, let the others that wait say it too, then raise TimeoutError."""
        if tell:
            for rank in set(range(self.world.Get_size())) - {self.rank}:
                self.world.Isend(np.empty(0, np.uint8), rank, self.alarm)
        since = time.strftime("%H:%M:%S", time.localtime(time.time() - waited))
        text = f"{self.name} waited {waited:.2g} s, since {since}, {what} at {caller()}"
        print(f"minigrad: {text}\n", end="", file=sys.stderr, flush=True)  # one write: a line stays whole
        time.sleep(GRACE)
        raise TimeoutError(f"{text}; check that every rank makes the same calls, or raise MINIGRAD_TIMEOUT")
