"""What the mpiexec or srun that started this process says of it, and whether MPI says the same.

A process that MPI does not connect to the others, because it is another MPI's mpiexec, or a srun without PMI,
or a variable left over from another job, is a whole world to itself: it would train the whole model alone.
"""

from __future__ import annotations

import os
import re
import select
import signal
import stat
import subprocess
import sys
import time
from contextlib import suppress
from typing import NamedTuple, NoReturn

RANKS = "MINIGRAD_RANKS"  # how many ranks minigrad started, for each of them to compare
# Open MPI's mpiexec; MPICH's, and srun --mpi=pmi2; srun --mpi=pmix. mpiexec may run in a task of srun, whose
# variables its ranks inherit: the first found counts.
VARIABLES: tuple[tuple[str, ...], ...] = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("PMIX_RANK",),
)
RANK_VARIABLES = tuple(names[0] for names in VARIABLES)
SIZE_VARIABLES = tuple(name for names in VARIABLES for name in names[1:])
NO_STEPS = 0xFFFFFFF0  # from here on Slurm numbers what are no steps of srun: batch scripts, salloc's shells
BOUND = 10  # seconds in which Open MPI's mpiexec ends the other ranks, once rank 0 has said what is wrong
SRUN = (
    "write srun --mpi=pmi2 for MPICH, --mpi=pmix for Open MPI, or leave srun out: minigrad starts its own "
    "ranks in a Slurm job"
)


class WorldError(RuntimeError):
    """The processes that were started are not the one world of ranks that was asked for."""


class Launcher(NamedTuple):
    """What started this process as one rank of several; ``size`` is None where only MPI knows it."""

    rank: int
    size: int | None
    variables: tuple[str, ...]

    @property
    def pmix(self) -> bool:
        """Whether it connects the ranks by PMIx, as Open MPI needs it; otherwise by PMI, as MPICH does."""
        return "PMI_RANK" not in self.variables and RANKS not in self.variables

    def way_out(self) -> str:
        if step_tasks():
            return SRUN
        return (
            f"use the mpiexec beside {sys.executable}, or leave mpiexec out; "
            f"where no mpiexec started this, unset {' '.join(self.variables)}"
        )


def launcher() -> Launcher | None:
    """What started this process as a rank; None where it is alone, and may start ranks of its own.

    Raises WorldError where the variables cannot all be true, or srun started several tasks without PMI.
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
    """Whether this process is a rank that an mpiexec or a srun started; raises WorldError as ``launcher``."""
    return launcher() is not None


def rank_under_mpiexec() -> int | None:
    """This process's rank as its mpiexec tells it, without starting MPI; None where there is none."""
    here = launcher()
    return None if here is None else here.rank


def only_rank_0() -> None:
    """Go on as the one process that a script without MPI needs: under an mpiexec the other ranks end here.

    MPICH's mpiexec looks, on a whole core, at the pipe of a rank that ended and never started MPI, until the
    job ends; so such a rank first takes leave as MPI's end does (``finalize`` of PMI-1, its answer awaited).
    """
    try:
        rank = rank_under_mpiexec()
    except WorldError as error:
        refuse(str(error))
    if not rank:
        return
    if {"HYDI_CONTROL_FD", "PMI_FD"} <= os.environ.keys():  # only MPICH's mpiexec sets both
        with suppress(OSError):
            os.write(pipe := int(os.environ["PMI_FD"]), b"cmd=finalize\n")
            select.select([pipe], [], [], 1)
    raise SystemExit


def size_under_mpiexec() -> int | None:
    """How many ranks this process's mpiexec started, where it tells."""
    here = launcher()
    return None if here is None else here.size


def number(name: str) -> int | None:
    """A variable's value; None where it is not set. Raises WorldError for what is no number."""
    text = os.environ.get(name)
    if text is not None and not text.isdecimal():
        raise WorldError(f"{name}={text} is not a number of ranks; unset {name}")
    return None if text is None else int(text)


def step_tasks() -> int | None:
    """How many tasks srun started this process with; None where it is none of srun's."""
    step, tasks = os.environ.get("SLURM_STEP_ID", ""), os.environ.get("SLURM_STEP_NUM_TASKS", "")
    return int(tasks) if tasks.isdecimal() and step.isdecimal() and int(step) < NO_STEPS else None


def check_world(size: int, ranks: int | None = None) -> None:
    """Raise WorldError unless MPI's world of ``size`` is what was started, and the ``ranks`` asked for."""
    here = launcher()
    if here is not None and here.size not in (None, size):
        who = "srun" if step_tasks() else "mpiexec"
        raise WorldError(f"{who} started {here.size} ranks, but MPI sees a world of {size}; {here.way_out()}")
    asked = ranks or number(RANKS)
    if asked not in (None, size):
        raise WorldError(
            f"MPI sees a world of {size}, and {asked} ranks were asked for; ask for {size}, or start {asked}"
        )


def check_library(here: Launcher, mpiexec: str) -> None:
    """Raise WorldError where MPI, once started, could not meet the other ranks as they are connected.

    ``mpiexec`` is whose it is that lies beside this Python: only another's is a reason to look closer.
    """
    if mpiexec != ("MPICH" if here.pmix else "Open MPI"):
        return
    library = mpi_library()
    if here.pmix:
        apart = "MPICH" in library and "pmix" not in library  # of how it was configured
    else:
        apart = re.search(r"Open MPI v([5-9]|\d\d)", library) is not None
    if apart:
        raise WorldError(
            f"{' and '.join(here.variables)} are of another MPI's launcher than this Python's, which is "
            f"{mpiexec}'s; {here.way_out()}"
        )


def mpi_library() -> str:
    """What the MPI that mpi4py loads says of itself, without starting it."""
    line = [sys.executable, "-m", "mpi4py", "--mpi-lib-version"]
    return subprocess.run(line, capture_output=True, text=True).stdout


def refuse(problem: str) -> NoReturn:
    """End this process, where all processes that were started with it end alike, with one line of error."""
    tell(problem)
    raise SystemExit(1)


def tell(message: str) -> None:
    """Print one line of error; of processes that fail alike only one does."""
    if process_number():
        if first_is_there():
            return
        if "PMIX_NAMESPACE" in os.environ:
            with suppress(ValueError):  # not the main thread
                signal.signal(signal.SIGTERM, signal.SIG_DFL)  # that end is no interrupt
            time.sleep(BOUND)  # Open MPI's mpiexec ends this process once rank 0 has ended
    print(f"minigrad: {message}", file=sys.stderr, flush=True)


def first_is_there() -> bool:
    """Whether there surely is a rank 0, which says what all have to say: in a srun, and on MPICH's pipe."""
    if (step_tasks() or 1) > 1:
        return True
    pipe = os.environ.get("PMI_FD", "")
    try:
        return pipe.isdecimal() and stat.S_ISSOCK(os.fstat(int(pipe)).st_mode)
    except OSError:
        return False


def process_number() -> int:
    """This process's number among those started with it, 0 where nothing tells."""
    names = (*RANK_VARIABLES, *(["SLURM_PROCID"] if step_tasks() else []))
    texts = (os.environ.get(name, "") for name in names)
    return next((int(text) for text in texts if text.isdecimal()), 0)
