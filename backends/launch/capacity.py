"""How many ranks one machine can hold; more are refused unless they are asked for twice."""

from __future__ import annotations

import os

RANKS_PER_CORE = 8
ALWAYS = 16  # ranks that any machine is trusted with: 2 x 2 x 2 grids on a laptop of two cores
PROCESS_BYTES = 128 << 20  # that a rank takes as a process, NumPy and MPI loaded, before any model


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def check_capacity(ranks: int, transport: str, oversubscribe: bool = False) -> None:
    """Raise ValueError for more ranks than this machine can hold, unless ``oversubscribe`` is set.

    These are 16, or 8 for each core; for processes also as many as its free memory has room for.
    """
    limits = {f"{cores()} core{'s' * (cores() > 1)}": max(ALWAYS, RANKS_PER_CORE * cores())}
    if transport == "mpi":
        limits[f"{free_memory() >> 20:,} MB of free memory"] = free_memory() // PROCESS_BYTES
    what, most = min(limits.items(), key=lambda limit: limit[1])
    if ranks > most and not oversubscribe:
        raise ValueError(
            f"{ranks} ranks are more than the {most} that {what} can hold; "
            "take fewer, or pass --oversubscribe"
        )


def free_memory() -> int:
    """Bytes that new processes can have, as Linux estimates them; elsewhere no bound is known."""
    try:
        with open("/proc/meminfo") as file:
            lines = dict(line.split(":", 1) for line in file)
        return int(lines["MemAvailable"].split()[0]) << 10
    except (OSError, KeyError, ValueError):
        return 1 << 62
