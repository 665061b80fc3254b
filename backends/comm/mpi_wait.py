"""Waits for MPI with a timeout, and the end of a program after the death of a rank.

A rank that times out reports what it was waiting for, and makes the other waiting ranks report too.
"""

from __future__ import annotations

import atexit
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from mpi4py import MPI

from ..process.hang_report import WAY_OUT, HangReported
from ..process.rank import LOST, note, note_wait, noted_status, number, one_that_left, request_stacks
from .communicator import NOTHING, Communicator, RankEnded, wait_limit
from .failure_detector import IN_TRANSIT, FailureDetector
from .mailboxes import caller

SPINNING = 0.002  # seconds of polling without pause
GRACE = 1.0  # seconds for other ranks to report their waits, before the first error ends the job
WATCHING = 1.5  # a rank that watches others waits this many times longer before it gives up
yield_core = getattr(os, "sched_yield", lambda: None)


class BoundedWait:
    """The waits of one process, or of its ``background``.

    ``alarm`` is the tag, in ``world``, of the message that a rank sends to all others when it gives up.
    ``idle_since`` is when the process stopped computing: its background may use the core from then on.
    """

    def __init__(self, world: Any, alarm: int, background: bool = False):
        self.world, self.alarm, self.rank = world, alarm, world.Get_rank()
        self.name = f"rank {self.rank}'s background" if background else f"rank {self.rank}"
        self.idle_since = math.inf if background else 0.0
        self.detector: FailureDetector | None = None

    def wait(self, done: Callable, what: str, needs: Sequence[int] = ()):
        """Poll ``done()`` until it is true, at first without pause, then less often; returns its result.

        Raises TimeoutError after ``wait_limit()`` seconds, or when another rank has given up; RankEnded if a
        watched rank has ended; RuntimeError if the program of one of the ranks ``needs`` has ended, or if
        MPI cannot read the memory of a rank that was killed.
        """
        try:
            return self.poll(done, what, needs)
        except MPI.Exception as error:
            if self.detector is None and error.Get_error_class() != MPI.ERR_OTHER:
                raise
            self.wait_for_end_of_job(what)
            note(f"{LOST}.{self.rank}", what)
            cause = error.Get_error_string().strip().rpartition(": ")[2]
            raise RuntimeError(
                f"{self.name} waited {what} at {caller()}, but MPI failed ({cause}): "
                "the process of another rank has probably been killed; see what that rank or its machine says"
            ) from error

    def wait_for_end_of_job(self, what: str) -> None:
        """Where a rank was killed, mpiexec ends this one within GRACE seconds, unless ranks are watched.

        Raises RankEnded for a watched rank that has ended.
        """
        start = time.monotonic()
        while (now := time.monotonic()) < start + GRACE:
            if self.detector is not None and (rank := self.detector.ended_rank(now, start)) is not None:
                raise RankEnded(rank, what, self.detector.reason(rank))
            time.sleep(IN_TRANSIT)

    def poll(self, done: Callable, what: str, needs: Sequence[int]):
        """``wait`` that raises MPI's own errors unchanged."""
        start, pause, checks = time.monotonic(), 0.0, 1
        while not (result := done()):
            now = time.monotonic()
            idle = now - max(start, self.idle_since)
            if 0 <= idle < SPINNING:  # the usual wait, of ranks in step
                if idle > SPINNING / 40:
                    yield_core()
                continue
            if self.detector is not None and (rank := self.detector.ended_rank(now, start)) is not None:
                raise RankEnded(rank, what, self.detector.reason(rank))
            self.check(what, now - start, needs)
            if now - start > checks:
                checks += 1
                self.check_running(what, needs)
            # Leave the core to computing threads. Most communication of a background advances only inside
            # MPI, so a background polls more often.
            pause = min(pause + 20e-6, 1e-3) if idle >= 0 else min(max(5e-5, (now - start) / 40), 1e-3)
            time.sleep(pause)
        return result

    def watch(self, comm: Communicator, ranks: Iterable[int], owing: Mapping[int, int] = NOTHING) -> None:
        """See ``Communicator.watch``; this rank can tell of the ranks of ``comm`` on its own machine."""
        if self.detector is None:
            self.detector = FailureDetector.of(comm)
        self.detector.ranks = set(ranks)
        self.detector.expect(owing)

    def close(self) -> None:
        """At the end of the program, if a rank is dead, skip MPI_Finalize, which waits for all ranks."""
        if self.detector is not None:
            atexit.register(self.detector.leave)

    def wait_for_thread(self, ended: Callable[[float], bool], what: str) -> None:
        """Sleep until ``ended(seconds)`` returns True: another thread of this process has done its part.

        That thread's own waits are bounded and their errors say more, so it may give up first.
        """
        start = time.monotonic()
        while not ended(0.05):
            self.check(what, time.monotonic() - start, [self.rank], extra=2 * GRACE)

    def check(self, what: str, waited: float, needs: Sequence[int], extra: float = 0.0) -> None:
        """Give up after ``wait_limit()`` and ``extra`` seconds, or when another rank has given up.

        A rank that watches others waits longer: silent ranks are killed first.
        """
        others_gave_up = self.world.Iprobe(tag=self.alarm)
        if others_gave_up or waited > wait_limit() * (1 if self.detector is None else WATCHING) + extra:
            self.give_up(what, waited, needs, alarm=not others_gave_up)

    def check_running(self, what: str, needs: Sequence[int]) -> None:
        """Raise RuntimeError if the program of one of the ranks ``needs`` has ended: its part never comes."""
        if (ended := one_that_left(needs)) is not None:
            raise RuntimeError(
                f"{self.name} waits {what} at {caller()}, but rank {ended}'s program is over; "
                "check that every rank makes the same calls, and none of them exits before"
            )

    def give_up(self, what: str, waited: float, needs: Sequence[int], alarm: bool) -> None:
        """Report what this rank waits for, make the other ranks report, and raise TimeoutError.

        Ranks that do not wait report only to a launcher of minigrad, which then speaks for all.
        """
        since = time.time() - waited
        reported = note_wait(self.name, f"{what} at {caller()}", needs, since)
        if alarm:
            for rank in set(range(self.world.Get_size())) - {self.rank}:
                self.world.Isend(np.empty(0, np.uint8), rank, self.alarm)
            request_stacks()
        clock = time.strftime("%H:%M:%S", time.localtime(since))
        text = f"{self.name} waited {waited:.2g} s, since {clock}, {what} at {caller()}"
        if not reported:
            print(f"minigrad: {text}\n", end="", file=sys.stderr, flush=True)  # one write: a line stays whole
        time.sleep(GRACE)
        error = HangReported if reported else TimeoutError
        raise error(f"{text}; {WAY_OUT}")


class RecoverableWait(BoundedWait):
    """Waits that end with the failures of MPI, unchanged; no other rank is asked whether it has given up."""

    def wait(self, done: Callable, what: str, needs: Sequence[int] = ()):
        return self.poll(done, what, needs)

    def check(self, what: str, waited: float, needs: Sequence[int], extra: float = 0.0) -> None:
        if waited > wait_limit() + extra:
            self.give_up(what, waited, needs, alarm=False)


@contextmanager
def deadline(who: str, what: str) -> Iterator[None]:
    """End this process, with a line, where a blocking call of MPI lasts longer than ``wait_limit()``."""

    def give_up() -> None:
        text = f"{who} waited {wait_limit():g} s {what}; raise MINIGRAD_TIMEOUT if a step lasts so long"
        print(f"minigrad: {text}", file=sys.stderr, flush=True)
        note(f"end.{number()}", "1")
        os._exit(1)

    timer = threading.Timer(wait_limit(), give_up)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def leave() -> None:
    """At the end of a program, if a rank is dead, skip MPI_Finalize, which may wait for it."""
    sys.stdout.flush()
    sys.stderr.flush()
    if MPI.COMM_WORLD.Get_failed().Get_size():
        os._exit(noted_status())
    with deadline(f"rank {MPI.COMM_WORLD.Get_rank()}", "for all ranks to end"):
        MPI.Finalize()
