"""A rank of an MPI job: how it is known, what it notes for the launcher, and how it ends all others.

``python -m backends.launch.rank script.py`` runs ``python -m mpi4py script.py``, which ends the job when the
script raises. The launcher learns of that even before MPI has started.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import NoReturn

from .launcher import RANK_VARIABLES, process_number
from .signals import SIGNALS, listen

# Tells a job's processes its folder, behind those of the jobs it is part of: by it they are known.
MARK = "MINIGRAD_JOB"
SHIELD = "MINIGRAD_SHIELD"  # tells a rank the process that stands between it and mpiexec
SETTLED = 1.0  # seconds for what a rank sent before its program was over to arrive


def number() -> int | None:
    """This process's rank as its mpiexec tells it, without starting MPI; None where there is none."""
    return process_number() if any(name in os.environ for name in RANK_VARIABLES) else None


def job_folder() -> str:
    """The folder of the job that this process belongs to, for notes; empty where there is none."""
    return os.environ.get(MARK, "").rpartition(":")[2]


def note(name: str, text: str) -> bool:
    """Write ``text`` to the file ``name`` in the job's folder; whether there is one."""
    if not (folder := job_folder()):
        return False
    file = os.path.join(folder, name)
    try:
        with open(f"{file}.{os.getpid()}.part", "w") as part:
            part.write(text)
        os.replace(part.name, file)
    except OSError:  # started by another launcher, or on another machine
        return False
    return True


def listen_for(numbers: Iterable[int]) -> None:
    """From now on the signals end this rank, and with it the job, also inside a call of MPI."""
    os.environ.setdefault(
        "UCX_DEBUG_SIGNO", "0"
    )  # MPICH's UCX takes SIGHUP for itself, to print what it does
    listen(numbers, lambda number, _: None, leave)


def leave(number_of_signal: int) -> NoReturn:
    """End this rank as the signal would, and with it the job: the others may wait for it.

    An end of a process that has started MPI ends the job, unless a shield stands before it. Of an earlier
    end mpiexec learns only where the process is killed.
    """
    status = 128 + number_of_signal
    if SHIELD not in os.environ and not note(f"end.{number()}", str(status)):
        name = signal.Signals(number_of_signal).name
        print(f"minigrad, rank {number()}: interrupted by {name}", file=sys.stderr, flush=True)
        if "mpi4py.MPI" not in sys.modules:
            os.kill(os.getpid(), signal.SIGKILL)
    os._exit(status)


def one_that_left(ranks: Iterable[int]) -> int | None:
    """One of ``ranks`` whose program is over for a while, while this one's is not; where ranks note it."""
    folder = job_folder()
    if not folder:
        return None
    left = os.path.join(folder, "left.")
    if os.path.exists(f"{left}{number()}"):
        return None
    for one in ranks:
        with suppress(OSError):
            if time.time() - os.stat(f"{left}{one}").st_mtime > SETTLED:
                return one
    return None


def main() -> None:
    """Run the script, module or command that the arguments name, as ``python -m mpi4py`` does."""
    note(f"pid.{number()}", str(os.getpid()))
    listen_for(set(SIGNALS) - {signal.SIGINT})
    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # ignored, where a shell started all in background
    try:
        runpy.run_module("mpi4py", run_name="__main__", alter_sys=True)
    except KeyboardInterrupt:
        leave(signal.SIGINT)
    except SystemExit as end:
        if end.code not in (None, 0):
            note(f"end.{number()}", str(end.code if isinstance(end.code, int) else 1))
            raise
    except BaseException:
        note(f"end.{number()}", "1")
        raise
    note(f"left.{number()}", "")


if __name__ == "__main__":
    main()
