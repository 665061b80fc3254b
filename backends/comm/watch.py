"""Which ranks have ended: the kernel of their machine knows, also of who was killed and said nothing."""

from __future__ import annotations

import os
import signal
import sys
import zlib
from collections.abc import Mapping

import numpy as np

from ..rank import SHIELD
from .collectives import allgather
from .protocol import Comm

EVERY = 0.05  # seconds between two looks
UNDER_WAY = 0.1  # seconds for what a process sent before its end to come


class Watch:
    """The processes of those ranks that are on this machine; of the others it knows nothing.

    ``ranks`` are those whose end is to be told.
    """

    def __init__(self, processes: Mapping[int, int]):
        self.processes = processes
        self.ranks: set[int] = set()
        self.found: dict[int, float] = {}  # when each was found to have ended
        self.looked = 0.0

    @classmethod
    def over(cls, comm: Comm) -> Watch:
        """Of the ranks of ``comm``, which all call this."""
        own = np.array([zlib.crc32(machine().encode()), os.getpid()], np.int64)
        places = allgather(comm, own)
        if os.environ.get(SHIELD) == str(os.getppid()):
            os.kill(os.getppid(), signal.SIGUSR2)
        return cls({rank: int(pid) for rank, (where, pid) in enumerate(places) if where == own[0]})

    def ended(self, now: float) -> int | None:
        """A rank of ``ranks`` that has ended, and whose last messages had the time to come."""
        if now - self.looked > EVERY:
            self.looked = now
            for rank in self.gone():
                self.found.setdefault(rank, now)
        return next((r for r, at in self.found.items() if r in self.ranks and now - at > UNDER_WAY), None)

    def gone(self) -> list[int]:
        return [rank for rank, process in self.processes.items() if not runs(process)]

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
