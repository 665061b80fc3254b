"""Which ranks have ended: the kernel of their machine knows, also of who was killed and said nothing."""

from __future__ import annotations

import os
import signal
import sys
import zlib
from collections.abc import Mapping
from contextlib import suppress

import numpy as np

from ..launch.rank import SHIELD
from .collectives import allgather
from .protocol import Comm, wait_limit

EVERY = 0.05  # seconds between two looks
LONGEST = 2 * EVERY  # that count: in a longer one this process was not running, so it heard of nothing
UNDER_WAY = 0.1  # seconds for what a process sent before its end to come
NEARLY = 0.8  # of the bound: ranks that wait for the same one have not begun together


class Watch:
    """The processes of those ranks that are on this machine; of the others it knows nothing.

    ``ranks`` are those whose end is to be told. ``silence`` counts, for each rank that has to send something
    and what that is, the seconds that this process has waited for it.
    """

    def __init__(self, processes: Mapping[int, int]):
        self.processes = processes
        self.ranks: set[int] = set()
        self.found: dict[int, float] = {}  # when each was found to have ended
        self.looked = 0.0
        self.silence: dict[tuple[int, int], float] = {}

    @classmethod
    def over(cls, comm: Comm) -> Watch:
        """Of the ranks of ``comm``, which all call this."""
        own = np.array([zlib.crc32(machine().encode()), os.getpid()], np.int64)
        places = allgather(comm, own)
        if os.environ.get(SHIELD) == str(os.getppid()):
            os.kill(os.getppid(), signal.SIGUSR2)
        return cls({rank: int(pid) for rank, (where, pid) in enumerate(places) if where == own[0]})

    def expect(self, owing: Mapping[int, int]) -> None:
        """From now on these ranks have to send something, each the number that is told."""
        self.silence = {one: self.silence.get(one, 0.0) for one in owing.items()}

    def ended(self, now: float, start: float) -> int | None:
        """A rank of ``ranks`` that has ended, and whose last messages had the time to come.

        One of which nothing came in ``wait_limit()`` seconds of waiting, this wait being one since ``start``,
        is ended: it may be stopped, and would keep the job from its end.
        """
        if now - self.looked > EVERY:
            waited, self.looked = min(now - max(start, self.looked), LONGEST), now
            for rank, number in self.silence:
                self.silence[rank, number] += waited
                if self.silence[rank, number] > wait_limit() and rank in self.processes:
                    with suppress(ProcessLookupError):
                        os.kill(self.processes[rank], signal.SIGKILL)
            for rank in self.gone():
                self.found.setdefault(rank, now)
        return next((r for r, at in self.found.items() if r in self.ranks and now - at > UNDER_WAY), None)

    def gone(self) -> list[int]:
        return [rank for rank, process in self.processes.items() if not runs(process)]

    def reason(self, rank: int) -> str:
        """Why a rank has ended, as far as is known here: another rank may have been the first to end it."""
        silence = max((s for (one, _), s in self.silence.items() if one == rank), default=0.0)
        if silence < NEARLY * wait_limit():
            return "it ended without a word"
        return f"it sent nothing for {wait_limit():g} s, and was ended"

    def leave(self) -> None:
        """At this process's end: where a rank is missing, leave without MPI's end, which waits for all."""
        if self.gone():
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)


def machine() -> str:
    """The name of what this process's number is good for: the machine, or the container."""
    try:
        return os.uname().nodename + os.readlink("/proc/self/ns/pid")
    except (AttributeError, OSError):
        return os.uname().nodename if hasattr(os, "uname") else "?"


def runs(process: int) -> bool:
    """Whether the process with this number runs, be it another user's."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
