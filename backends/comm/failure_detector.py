"""Detects ranks that have ended, even killed ones: it asks the kernel whether their processes are alive."""

from __future__ import annotations

import os
import signal
import sys
import zlib
from collections.abc import Mapping
from contextlib import suppress

import numpy as np

from ..process.rank import SHIELD
from .collectives import allgather
from .communicator import Communicator, wait_limit

INTERVAL = 0.05  # seconds between two checks
LONGEST = 2 * INTERVAL  # seconds of silence that count between checks: in more, this process was not running
IN_TRANSIT = 0.1  # seconds for the last messages of a process to arrive
NEARLY = 0.8  # of the limit: ranks that wait for the same one did not begin at the same time


class FailureDetector:
    """The processes of the ranks on this machine; it knows nothing of other ranks.

    ``ranks`` are the watched ones. ``silence`` counts the seconds that this process has
    waited for each message that is due, by its rank and number.
    """

    def __init__(self, processes: Mapping[int, int]):
        self.processes = processes
        self.ranks: set[int] = set()
        self.dead_since: dict[int, float] = {}  # when the end of each was detected
        self.last_check = 0.0
        self.silence: dict[tuple[int, int], float] = {}

    @classmethod
    def of(cls, comm: Communicator) -> FailureDetector:
        """A detector for the ranks of ``comm``, which all call this."""
        own = np.array([zlib.crc32(machine_name().encode()), os.getpid()], np.int64)
        processes = allgather(comm, own)
        if os.environ.get(SHIELD) == str(os.getppid()):
            os.kill(os.getppid(), signal.SIGUSR2)
        return cls({rank: int(pid) for rank, (machine, pid) in enumerate(processes) if machine == own[0]})

    def expect(self, owing: Mapping[int, int]) -> None:
        """Ranks that have to send something from now on, each with the number of what it sends."""
        self.silence = {one: self.silence.get(one, 0.0) for one in owing.items()}

    def ended_rank(self, now: float, start: float) -> int | None:
        """A rank of ``ranks`` that has ended, after its last messages had time to arrive.

        This wait began at ``start``. A rank that sent nothing in ``wait_limit()`` seconds of waiting is
        killed: it may be a stopped process, which would keep the job from ending.
        """
        if now - self.last_check > INTERVAL:
            waited, self.last_check = min(now - max(start, self.last_check), LONGEST), now
            for rank, number in self.silence:
                self.silence[rank, number] += waited
                if self.silence[rank, number] > wait_limit() and rank in self.processes:
                    with suppress(ProcessLookupError):
                        os.kill(self.processes[rank], signal.SIGKILL)
            for rank in self.dead_ranks():
                self.dead_since.setdefault(rank, now)
        return next(
            (r for r, at in self.dead_since.items() if r in self.ranks and now - at > IN_TRANSIT), None
        )

    def dead_ranks(self) -> list[int]:
        return [rank for rank, process in self.processes.items() if not is_alive(process)]

    def reason(self, rank: int) -> str:
        """Why a rank has ended, as far as this rank knows: another rank may have killed it first."""
        silence = max((s for (one, _), s in self.silence.items() if one == rank), default=0.0)
        if silence < NEARLY * wait_limit():
            return "it ended without a message"
        return f"it sent nothing for {wait_limit():g} s, and was killed"

    def leave(self) -> None:
        """At the end of this process: if a rank is dead, skip MPI_Finalize, which waits for all ranks."""
        if self.dead_ranks():
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)


def machine_name() -> str:
    """The name of the machine or container in which process numbers are unique."""
    try:
        return os.uname().nodename + os.readlink("/proc/self/ns/pid")
    except (AttributeError, OSError):
        return os.uname().nodename if hasattr(os, "uname") else "?"


def is_alive(process: int) -> bool:
    """Whether the process with this number is running, even as another user."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
