"""One line of the trace of a storm, and how long a process lived."""

from __future__ import annotations

from typing import NamedTuple


class Event(NamedTuple):
    """What happened at a time of the simulated clock: on a rank, or with None on the cluster.

    ``kind`` is one of start, resume, step, checkpoint, message, fault, error and end.
    """

    at: float
    rank: int | None
    kind: str
    text: str

    def __str__(self) -> str:
        where = "cluster" if self.rank is None else f"rank {self.rank}"
        return f"{self.at:10.3f} s  {where:<8} {self.text}"


class Life(NamedTuple):
    """A process of one rank: it loaded from ``start``, trained from ``trains`` (None: never), until ``stop``.

    ``end`` is killed, failed, stopped (by the launcher) or done.
    """

    rank: int
    start: float
    trains: float | None
    stop: float
    end: str
