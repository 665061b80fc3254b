"""What a rank computes, sends and holds: three numbers of a machine.

Lecture section: what a cluster would do. Lesson: 15_scale, by ``planner.py``.
"""

from __future__ import annotations

from typing import NamedTuple

from ..comm.collectives.link import Link


class Hardware(NamedTuple):
    """One rank: operations per second in ``flops``, the ``link`` to any other rank, bytes of ``memory``.

    All links are alike, and a rank sends one message at a time (Hockney 1994).
    """

    flops: float
    link: Link
    memory: float
