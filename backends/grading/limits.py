"""What a submission may use: memory, time, room for files; and where it was when its time was up."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

MEBIBYTE = 2**20
DESCRIPTORS = 64
CASE_SECONDS = 20.0  # a case that lasts longer never ends


def limit(mebibytes: int, seconds: float, written: int = 0) -> list[str]:
    """Bound this process's memory, time on a core, files and their size; what is bounded, in words.

    Shared memory counts as well as its own. ``written`` are the mebibytes that a file may grow to; nothing
    is written to one where it is 0.
    """
    try:
        import resource
    except ImportError:
        return []
    bounds = {
        "RLIMIT_DATA": mebibytes * MEBIBYTE,
        "RLIMIT_AS": mapped() + 2 * mebibytes * MEBIBYTE,  # threads reserve more than they use
        "RLIMIT_CPU": int(seconds) + 5,
        "RLIMIT_FSIZE": written * MEBIBYTE,
        "RLIMIT_NOFILE": DESCRIPTORS,
        "RLIMIT_MSGQUEUE": 0,
        "RLIMIT_MEMLOCK": 0,
        "RLIMIT_CORE": 0,
    }
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")  # where memory is out, the system is to end this process, and not the grader
    held = []
    for name, bound in bounds.items():
        with suppress(AttributeError, ValueError, OSError):  # not on every system
            kind = getattr(resource, name)
            hard = resource.getrlimit(kind)[1]
            bound = bound if hard == resource.RLIM_INFINITY else min(bound, hard)
            resource.setrlimit(kind, (bound, bound))
            held.append(name)
    return (
        ["memory, time and files"]
        if {"RLIMIT_DATA", "RLIMIT_AS", "RLIMIT_CPU", "RLIMIT_FSIZE"} <= {*held}
        else []
    )


def mapped() -> int:
    """The bytes of address space that this process has taken."""
    with suppress(OSError, ValueError):
        return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGESIZE")
    return 2**30


class Clock:
    """The time that a task has, ``seconds``, and that each of its cases has."""

    def __init__(self, seconds: float):
        self.seconds = seconds

    def case_began(self) -> None:
        self.case_end = time.monotonic() + CASE_SECONDS

    def watch(self, places: Callable[[], list[str]], late: Callable[[str], object]) -> None:
        """From now on, call ``late`` once the time is up, with the ``places`` at which the program is."""
        self.end = time.monotonic() + self.seconds
        self.case_began()

        def watch() -> None:
            while (left := min(self.end, self.case_end) - time.monotonic()) > 0:
                time.sleep(min(left, 0.2))
            had = CASE_SECONDS if self.case_end < self.end else self.seconds
            late(": ".join([f"did not end in {had:.0f} s", *filter(None, ["; ".join(places())])]))

        threading.Thread(target=watch, name="watch", daemon=True).start()
