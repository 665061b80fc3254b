"""The mpiexec or srun that started this process, from its variables, and whether MPI agrees with it.

MPI may fail to connect a process to the other ranks: mpiexec belongs to another MPI, srun has no PMI, or a
variable is left over from another job. Such a process would be a world of one rank and train alone.
"""

from __future__ import annotations

import os
import re
import signal
import stat
import subprocess
import sys
import time
from contextlib import suppress
from typing import NamedTuple, NoReturn

RANKS = "MINIGRAD_RANKS"  # the number of ranks that minigrad started; each rank compares it with MPI's
# Set by Open MPI's mpiexec; by MPICH's and srun --mpi=pmi2; by srun --mpi=pmix. mpiexec may run in a task of
# srun, whose variables its ranks inherit: the first set counts.
VARIABLES: tuple[tuple[str, ...], ...] = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("PMIX_RANK",),
)
RANK_VARIABLES = tuple(names[0] for names in VARIABLES)
SIZE_VARIABLES = tuple(name for names in VARIABLES for name in names[1:])
NO_STEPS = 0xFFFFFFF0  # from here on Slurm's numbers mean batch scripts and salloc's shells, not steps
END_SECONDS = 10  # within which Open MPI's mpiexec ends the other ranks after rank 0 has ended
SRUN = (
    "write srun --mpi=pmi2 for MPICH, --mpi=pmix for Open MPI, or leave srun out: minigrad starts its own "
    "ranks in a Slurm job"
)


class WorldError(RuntimeError):
    """The processes that were started do not form one world of the requested size."""


class Launcher(NamedTuple):
    """What started this process as one rank of several; ``size`` is None where only MPI knows it."""

    rank: int
    size: int | None
    variables: tuple[str, ...]

    @property
    def pmix(self) -> bool:
        """Whether it connects the ranks by PMIx, as Open MPI needs, and not by PMI, as MPICH does."""
        return "PMI_RANK" not in self.variables and RANKS not in self.variables

    def way_out(self) -> str:
        if step_tasks():
            return SRUN
        return (
            f"use the mpiexec beside {sys.executable}, or leave mpiexec out; "
            f"where no mpiexec started this, unset {' '.join(self.variables)}"
        )


def launcher() -> Launcher | None:
    """The launcher that started this process as a rank; None for a process that may start ranks of its own.

    Raises WorldError where the variables contradict each other, or srun started several tasks without PMI.
    """
    tasks = step_tasks()
    for names in VARIABLES:
        variables = tuple(name for name in names if name in os.environ)
        if not variables:
            continue
        values = {name: number(name) for name in variables}
        rank, size = values.get(names[0]), values.get(names[1]) if names[1:] else tasks
        if rank is None or len(values) < len(names) or (size is not None and rank >= size):
            text = " ".join(f"{name}={value}" for name, value in values.items())
            raise WorldError(
                f"{text} is left over from another job: mpiexec sets {' and '.join(names)}, the rank below "
                f"the size; unset {' '.join(variables)}"
            )
        if size == tasks == 1 and RANKS not in os.environ:
            return None  # the one task of a srun is like a shell of its own
        return Launcher(rank, size, variables)
    if tasks is not None and tasks > 1:
        raise WorldError(f"srun started {tasks} tasks that do not know one another; {SRUN}")
    if (ranks := number(RANKS)) is not None and ranks > 1:
        raise WorldError(
            f"{RANKS}={ranks}, but no mpiexec or srun tells this process its rank; unset {RANKS} where it is "
            "left over, or use the mpiexec of the MPI that mpi4py loads"
        )
    return None if ranks is None else Launcher(0, ranks, (RANKS,))


def under_mpiexec() -> bool:
    """Whether mpiexec or srun started this process as a rank; raises WorldError as ``launcher`` does."""
    return launcher() is not None


def size_under_mpiexec() -> int | None:
    """The number of ranks that the launcher started; None where it is unknown or there is no launcher."""
    here = launcher()
    return None if here is None else here.size


def number(name: str) -> int | None:
    """The variable's value; None where it is not set. Raises WorldError for a text that is not a number."""
    text = os.environ.get(name)
    if text is not None and not text.isdecimal():
        raise WorldError(f"{name}={text} is not a number of ranks; unset {name}")
    return None if text is None else int(text)


def step_tasks() -> int | None:
    """The number of tasks in this process's srun step; None where srun did not start this process."""
    step, tasks = os.environ.get("SLURM_STEP_ID", ""), os.environ.get("SLURM_STEP_NUM_TASKS", "")
    return int(tasks) if tasks.isdecimal() and step.isdecimal() and int(step) < NO_STEPS else None


def check_world(size: int, ranks: int | None = None) -> None:
    """Raise WorldError unless MPI's world size is the launcher's and the requested number of ``ranks``."""
    here = launcher()
    if here is not None and here.size not in (None, size):
        who = "srun" if step_tasks() else "mpiexec"
        raise WorldError(f"{who} started {here.size} ranks, but MPI sees a world of {size}; {here.way_out()}")
    expected = ranks or number(RANKS)
    if expected not in (None, size):
        raise WorldError(
            f"MPI sees a world of {size}, and {expected} ranks were asked for; ask for {size}, or start "
            f"{expected}"
        )


def check_library(here: Launcher, mpiexec: str) -> None:
    """Raise WorldError where the launcher belongs to another MPI than the library that mpi4py loads.

    ``mpiexec`` is the vendor of the mpiexec beside this Python; the library is asked only where that differs
    from the launcher's.
    """
    if mpiexec != ("MPICH" if here.pmix else "Open MPI"):
        return
    library = mpi_library()
    without_pmix = "MPICH" in library and "pmix" not in library  # MPICH says how it was configured
    without_pmi = re.search(r"Open MPI v([5-9]|\d\d)", library)
    if without_pmix if here.pmix else without_pmi:
        raise WorldError(
            f"{' and '.join(here.variables)} are of another MPI's launcher than this Python's, which is "
            f"{mpiexec}'s; {here.way_out()}"
        )


def mpi_library() -> str:
    """The version text of the MPI library that mpi4py loads, without starting MPI."""
    line = [sys.executable, "-m", "mpi4py", "--mpi-lib-version"]
    return subprocess.run(line, capture_output=True, text=True).stdout


def refuse(problem: str) -> NoReturn:
    """End this process with one line of error; all processes of the job end in the same way."""
    print_once(problem)
    raise SystemExit(1)


def say(message: str) -> None:
    """Print one line of error, from only one of the ranks that fail in the same way."""
    rank = process_number()
    if rank and "mpi4py.MPI" in sys.modules:  # before MPI starts all ranks fail in the same way
        time.sleep(1)  # if rank 0 fails too, it aborts the job first
        print(f"minigrad, rank {rank}: {message}", file=sys.stderr, flush=True)
    else:
        print_once(message)


def print_once(message: str) -> None:
    """Print one line of error, from only one of the processes that fail in the same way."""
    if process_number():
        if rank_0_exists():
            return
        if "PMIX_NAMESPACE" in os.environ:
            with suppress(ValueError):  # not the main thread
                signal.signal(signal.SIGTERM, signal.SIG_DFL)  # mpiexec's SIGTERM is no interrupt by the user
            time.sleep(END_SECONDS)  # Open MPI's mpiexec ends this process once rank 0 has ended
    print(f"minigrad: {message}", file=sys.stderr, flush=True)


def rank_0_exists() -> bool:
    """Whether there is surely a rank 0, which prints the message: in a srun step, and on MPICH's pipe."""
    if (step_tasks() or 1) > 1:
        return True
    pipe = os.environ.get("PMI_FD", "")
    try:
        return pipe.isdecimal() and stat.S_ISSOCK(os.fstat(int(pipe)).st_mode)
    except OSError:
        return False


def process_number() -> int:
    """This process's rank, or its task number in a srun step; 0 where neither is set."""
    names = (*RANK_VARIABLES, *(["SLURM_PROCID"] if step_tasks() else []))
    texts = (os.environ.get(name, "") for name in names)
    return next((int(text) for text in texts if text.isdecimal()), 0)
