"""Between mpiexec and a rank: when the rank is killed, mpiexec does not learn of it and lets the others be.

``python -m backends.shield command`` runs ``command``; it ends with its status, or 0 where it was killed.
MPICH's mpiexec ends a job when one of its processes closes its pipe or ends by a signal, also with
``-disable-auto-cleanup``; this process holds the pipe. That option is needed beside it: with it mpiexec
bears that a process ends without MPI's end, and tells the others by SIGUSR1, which would end them.

Before the rank has said, by SIGUSR2, that the others watch for its end, they would wait for it: then this
process goes as it went, and mpiexec ends the job.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from typing import Any

from . import rank
from .rank import SHIELD
from .signals import SIGNALS

END_WITH_PARENT = 1  # Linux's PR_SET_PDEATHSIG


def main(command: list[str]) -> int:
    """Run ``command``; the status to end with."""
    told: list[int] = []
    watched: list[int] = []

    def pass_on(number: int, _: Any) -> None:
        told.append(number)
        process.send_signal(number)

    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    signal.signal(signal.SIGUSR2, lambda number, _: watched.append(number))
    variables = {**os.environ, SHIELD: str(os.getpid())}
    process = subprocess.Popen(command, env=variables, close_fds=False, preexec_fn=end_with_parent)
    for number in SIGNALS:
        signal.signal(number, pass_on)
    status = process.wait()
    number = -status if status < 0 else status - 128  # a rank that a signal ends may do the rest itself
    if told or (status >= 0 and number not in SIGNALS):
        return status if status >= 0 else 128 - status
    name = signal.Signals(number).name
    print(f"minigrad: rank {rank.number()} was ended by {name}", file=sys.stderr, flush=True)
    if not watched:
        os.kill(os.getpid(), signal.SIGKILL)
    return 0


def end_with_parent() -> None:
    """Where Linux can, let the kernel kill this process when its parent is killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(END_WITH_PARENT, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
