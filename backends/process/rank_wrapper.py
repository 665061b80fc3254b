"""A process between mpiexec and a rank: it hides a killed rank from mpiexec, so that the other ranks go on.

``python -m backends.process.rank_wrapper command`` runs ``command`` and exits with its status, or with 0 if a
signal killed it. MPICH's mpiexec ends a job when one of its processes closes its pipe or dies by a signal,
even with ``-disable-auto-cleanup``, so this process holds the pipe. The option is also needed: with it,
mpiexec tolerates a process that exits without MPI_Finalize. It then sends SIGUSR1 to the other ranks, which
would kill them, so this wrapper ignores it.

Until the rank announces (SIGUSR2) that the other ranks watch for failures, a failure would leave them
waiting. In that phase this process dies with the rank, so mpiexec ends the job.
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
    """Run ``command``; returns the exit status of this process."""
    forwarded: list[int] = []
    announcements: list[int] = []

    def forward(number: int, _: Any) -> None:
        forwarded.append(number)
        process.send_signal(number)

    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    signal.signal(signal.SIGUSR2, lambda number, _: announcements.append(number))
    variables = {**os.environ, SHIELD: str(os.getpid())}
    process = subprocess.Popen(command, env=variables, close_fds=False, preexec_fn=end_with_parent)
    for number in set(SIGNALS) - {signal.SIGUSR1}:
        signal.signal(number, forward)
    status = process.wait()
    number = -status if status < 0 else status - 128  # a rank that handles its signal exits with 128 + number
    if forwarded or (status >= 0 and number not in SIGNALS):
        return status if status >= 0 else 128 - status
    name = signal.Signals(number).name
    print(f"minigrad: rank {rank.number()} was ended by {name}", file=sys.stderr, flush=True)
    if not announcements:
        rank.note(f"end.{rank.number()}", str(128 + number))  # the launcher ends the job, if mpiexec does not
        os.kill(os.getpid(), signal.SIGKILL)
    return 0


def end_with_parent() -> None:
    """On Linux, let the kernel kill this process when its parent is killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(END_WITH_PARENT, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
