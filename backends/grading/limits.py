"""What a submission may use: memory, time, room for files; and where it was when its time was up."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress

MEBIBYTE = 2**20
CASE_SECONDS = 20.0  # a case that lasts longer never ends


def limit(mebibytes: int, seconds: float, written: int = 16) -> None:
    """Bound this process's memory, time on a core, and the size of files; where the system can."""
    try:
        import resource
    except ImportError:
        return
    bounds = {
        "RLIMIT_DATA": mebibytes * MEBIBYTE,
        "RLIMIT_CPU": int(seconds) + 5,
        "RLIMIT_FSIZE": written * MEBIBYTE,
        "RLIMIT_CORE": 0,
    }
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")  # where memory is out, the system is to end this process, and not the grader
    for name, bound in bounds.items():
        kind = getattr(resource, name)
        hard = resource.getrlimit(kind)[1]
        bound = bound if hard == resource.RLIM_INFINITY else min(bound, hard)
        with suppress(ValueError, OSError):  # not on every system
            resource.setrlimit(kind, (bound, bound))


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
