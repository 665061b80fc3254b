"""Waiting for MPI with a bound: who gives up says what it waited for, and asks the others the same."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from .protocol import wait_limit
from .world import caller

SPINNING = 0.002  # seconds of polling without pause
GRACE = 1.0  # seconds for other ranks to say what they wait for, before the first one's error ends the job
yield_core = getattr(os, "sched_yield", lambda: None)


class Patience:
    """The waits of one process; ``alarm`` is the tag, of ``world``, that says: I gave up, and you?"""

    def __init__(self, world: Any, alarm: int):
        self.world, self.alarm, self.rank = world, alarm, world.Get_rank()

    def wait(self, done: Callable, what: str):
        """Poll ``done()`` until it is true, at first without pause, then ever more seldom; what it returned.

        Raises TimeoutError after ``wait_limit()`` seconds, or when another rank has given up.
        """
        start, pause = time.monotonic(), 0.0
        while not (result := done()):
            waited = time.monotonic() - start
            if waited < SPINNING:  # ranks in step meet within this
                if waited > SPINNING / 40:
                    yield_core()
                continue
            others_gave_up = self.world.Iprobe(tag=self.alarm)
            if others_gave_up or waited > wait_limit():
                self.give_up(what, waited, tell=not others_gave_up)
            pause = min(pause + 20e-6, 1e-3)  # leaves the core to those who compute
            time.sleep(pause)
        return result

    def give_up(self, what: str, waited: float, tell: bool) -> None:
        """Say what this rank waits for, let the others that wait say it too, then raise TimeoutError."""
        if tell:
            for rank in set(range(self.world.Get_size())) - {self.rank}:
                self.world.Isend(np.empty(0, np.uint8), rank, self.alarm)
        since = time.strftime("%H:%M:%S", time.localtime(time.time() - waited))
        text = f"rank {self.rank} waited {waited:.2g} s, since {since}, {what} at {caller()}"
        print(f"minigrad: {text}\n", end="", file=sys.stderr, flush=True)  # one write: a line stays whole
        time.sleep(GRACE)
        raise TimeoutError(f"{text}; check that every rank makes the same calls, or raise MINIGRAD_TIMEOUT")
