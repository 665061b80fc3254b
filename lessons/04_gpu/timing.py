"""How long something takes, on a CPU or on a GPU; and the least that a GPU's data sheet allows."""

import json
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

from minigrad.device import array_module


def seconds(work, of, rounds=5, least=1e-3):
    """The shortest mean time of a call of ``work()``, in seconds, over several ``rounds`` of calls.

    ``of`` is an array on the device that works. A round lasts ``least`` seconds or one call. A GPU works
    while Python continues: so each call is followed by a wait, and its time includes the launch. On a CPU it
    is the time that this thread ran, if the clock is fine enough: other programs on the core do not count.
    """
    xp, clock = array_module(of), time.perf_counter
    if xp is not np:
        wait = xp.cuda.get_current_stream().synchronize
    else:
        wait = int  # a CPU has finished when the call returns
        if time.get_clock_info("thread_time").resolution < 1e-6:
            clock = time.thread_time
    times, calls = [], 1
    while len(times) < rounds + 1:
        start = clock()
        for _ in range(calls):
            work()
            wait()
        took = max(clock() - start, 1e-9)
        if not times:  # the first time is slower: it only tells how many calls fill a round
            calls = max(1, round(least * calls / took))
        times.append(took / calls if times else np.inf)
    return min(times)


class Sheet(NamedTuple):
    """Published figures of a GPU, in operations, bytes and seconds."""

    name: str
    flops: float  # operations a second, float32
    memory: float  # bytes a second
    link: float  # bytes a second to or from the host, one way
    launch: float  # seconds until an operation that Python asks for begins

    def seconds(self, flop, moved):
        """The least time of one operation that reads and writes ``moved`` bytes of the GPU's memory."""
        return self.launch + max(flop / self.flops, moved / self.memory)

    def copying(self, moved, copies):
        """The least time of ``copies`` copies over the link, ``moved`` bytes together."""
        return copies * self.launch + moved / self.link


H200 = Sheet("NVIDIA H200", flops=67e12, memory=4.8e12, link=64e9, launch=10e-6)

LAUNCHES: dict[str, dict[str, int]] = json.loads(
    Path(__file__).with_name("launches.json").read_text(encoding="utf-8")
)
"""What one training step asks of a GPU, by network: ``python -m tests.launches --write``."""
