"""A rank of an MPI job: its number, the notes that it writes for the launcher, and how it ends the job.

``python -m backends.process.rank script.py`` runs ``python -m mpi4py script.py``, which ends the job when the
script raises. The rank notes its end in the job's folder, so the launcher knows it even before MPI starts.
"""

from __future__ import annotations

import faulthandler
import json
import os
import runpy
import signal
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from .cores import set_threads
from .hang_report import HangReported
from .launcher import RANK_VARIABLES, process_number
from .signals import SIGNALS, listen
from .sweep import MARK, marked, text_of

SAVES, LOST = "saves", "lost"  # the notes of a rank that saves at a signal, and of one that lost another
STOPPED = "stopped"  # the note about a rank whose process was stopped when a wait timed out
SHIELD = "MINIGRAD_SHIELD"  # the variable that tells a rank the process between it and mpiexec
DELIVERY = 1.0  # seconds within which messages that a rank sent before its end arrive
DUMP = signal.SIGQUIT  # a rank that gets it writes its stacks, as Java's machines do, and goes on


def number() -> int | None:
    """This process's rank from its launcher's variables, without starting MPI; None outside an MPI job."""
    return process_number() if any(name in os.environ for name in RANK_VARIABLES) else None


def job_folder() -> str:
    """The folder for notes of the job that this process belongs to; empty if there is none."""
    return os.environ.get(MARK, "").rpartition(":")[2]


def note(name: str, text: str) -> bool:
    """Write ``text`` to the file ``name`` in the job's folder; whether there is such a folder."""
    if not (folder := job_folder()):
        return False
    part = Path(folder, f"{name}.{os.getpid()}.part")
    try:
        part.write_text(text, encoding="utf-8")
        part.replace(part.with_name(name))
    except OSError:  # another launcher started this process, or another machine runs it
        return False
    return True


def noted_status() -> int:
    """The exit status that this rank has noted; 0 where there is none."""
    return int(text_of(Path(job_folder(), f"end.{number()}")) or 0)


def listen_for(numbers: Iterable[int]) -> None:
    """From now on these signals end this rank, and with it the job, even inside a call of MPI."""
    os.environ.setdefault("UCX_DEBUG_SIGNO", "0")  # else MPICH's UCX uses SIGHUP to print its state
    if SHIELD in os.environ:  # MPICH itself sends SIGUSR1 to those that survive another rank's end
        numbers = set(numbers) - {signal.SIGUSR1}
    listen(numbers, lambda number, _: None, leave)


def leave(number_of_signal: int) -> NoReturn:
    """End this rank as the signal would, and with it the job, because other ranks may wait for this one.

    mpiexec ends the job when a process that has started MPI exits, unless a shield stands before it. Before
    MPI starts, mpiexec notices only a killed process.
    """
    status = 128 + number_of_signal
    if SHIELD not in os.environ and not note(f"end.{number()}", str(status)):
        name = signal.Signals(number_of_signal).name
        if number_of_signal != signal.SIGTERM:  # with which a launcher ends the ranks that did not fail
            print(f"minigrad, rank {number()}: interrupted by {name}", file=sys.stderr, flush=True)
        if "mpi4py.MPI" not in sys.modules:
            os.kill(os.getpid(), signal.SIGKILL)
    os._exit(status)


def one_that_left(ranks: Iterable[int]) -> int | None:
    """One of ``ranks`` whose program ended more than a second ago, while this rank's runs; else None."""
    left = os.path.join(job_folder(), "left.")
    if not job_folder() or os.path.exists(f"{left}{number()}"):
        return None
    for one in ranks:
        with suppress(OSError):
            if time.time() - os.stat(f"{left}{one}").st_mtime > DELIVERY:
                return one
    return None


def write_stacks_on_signal() -> None:
    """From now on DUMP writes the stacks of this rank's threads into the job's folder, even inside MPI."""
    if not (folder := job_folder()):  # another launcher started this process
        return
    with suppress(OSError):  # another machine runs it
        file = open(os.path.join(folder, f"stacks.{number()}"), "w", encoding="utf-8")  # noqa: SIM115
        faulthandler.register(DUMP, file)


def note_wait(name: str, wait: str, peers: Iterable[int], since: float) -> bool:
    """Note for the launcher what ``name``, this rank or its background, waited for when it gave up.

    ``since`` is in seconds of the machine's clock. Returns whether there is a launcher that reports it.
    """
    thread = "background" if name.endswith("background") else "main"
    text = json.dumps({"name": name, "wait": wait, "peers": list(peers), "since": since})
    return note(f"wait.{number()}.{thread}", text)


def request_stacks() -> None:
    """Let all ranks of the job on this machine write their stacks, unless another rank has requested it.

    Notes which of them are stopped: mpiexec may let them go on before the launcher asks.
    """
    folder = job_folder()
    with suppress(OSError):
        os.close(os.open(os.path.join(folder, "hang"), os.O_CREAT | os.O_EXCL))
        ours = {*marked(folder), os.getpid()}  # a process number may be of another machine
        for file in Path(folder).glob("pid.*[0-9]"):
            with suppress(ValueError, ProcessLookupError):
                if (process := int(file.read_text(encoding="utf-8"))) in ours:
                    if stat_of(process)[1] == "T":
                        note(f"{STOPPED}{file.suffix}", "")
                    os.kill(process, DUMP)


def stat_of(process: int | str) -> tuple[str, str]:
    """A process's name, and its state as a letter: "T" if a signal has stopped it; empty without a /proc."""
    name, _, rest = text_of(f"/proc/{process}/stat").partition("(")[2].rpartition(")")
    return name, rest[1:2]


def main() -> None:
    """Run the script, module or command that the arguments name, as ``python -m mpi4py`` does."""
    write_stacks_on_signal()
    note(f"pid.{number()}", str(os.getpid()))
    listen_for(set(SIGNALS) - {signal.SIGINT})
    set_threads()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs of a shell ignore it at first
    try:
        runpy.run_module("mpi4py", run_name="__main__", alter_sys=True)
    except KeyboardInterrupt:
        leave(signal.SIGINT)
    except SystemExit as end:
        if end.code not in (None, 0):
            note(f"end.{number()}", str(end.code if isinstance(end.code, int) else 1))
            raise
    except HangReported:
        note(f"end.{number()}", "1")
        sys.exit(1)
    except BaseException:
        note(f"end.{number()}", "1")
        raise
    note(f"left.{number()}", "")


if __name__ == "__main__":
    main()
