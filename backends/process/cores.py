"""The cores of this machine, and how many threads each of its ranks takes for matrix products.

A rank reads this before it loads NumPy, whose BLAS makes its threads then: Python's own library only.
"""

from __future__ import annotations

import os
import re

from .launcher import step_tasks

THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
LOCAL_SIZES = ("MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE")  # set by MPICH's and Open MPI's mpiexec


def cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def ranks_here() -> int | None:
    """The number of this job's ranks on this machine, from the launcher's variables; None where unknown."""
    for name in LOCAL_SIZES:
        if os.environ.get(name, "").isdecimal():
            return max(int(os.environ[name]), 1)
    if step_tasks() is None:
        return None
    tasks = counts(os.environ.get("SLURM_STEP_TASKS_PER_NODE", ""))
    node = os.environ.get("SLURM_NODEID", "")
    return tasks[int(node)] if node.isdecimal() and int(node) < len(tasks) else None


def threads_of_rank(ranks: int) -> int:
    """The threads of one of ``ranks`` on this machine: its share of the cores, at least 1.

    In a step of srun that gave each task its CPUs, they are these CPUs.
    """
    own = os.environ.get("SLURM_CPUS_PER_TASK", "")
    if step_tasks() is not None and own.isdecimal() and int(own):
        return min(int(own), cores())
    return max(1, cores() // ranks)


def set_threads() -> None:
    """Set the variables for the threads of this rank, unless one is set or the ranks here are unknown."""
    ranks = ranks_here()
    if ranks is not None and not any(name in os.environ for name in THREAD_VARIABLES):
        os.environ.update(dict.fromkeys(THREAD_VARIABLES, str(threads_of_rank(ranks))))


def let_idle_threads_sleep() -> None:
    """Let a thread of OpenBLAS that has no product spin for 2^20 cycles, a third of a millisecond.

    By default it spins for 2^26: a command whose products take one thread would burn 0.1 s of another core.
    """
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "20")


def counts(text: str) -> list[int]:
    """A number for each node, from Slurm's short form: "4(x2),3" is 4, 4, 3."""
    pairs = re.findall(r"(\d+)(?:\(x(\d+)\))?", text)
    return [int(number) for number, times in pairs for _ in range(int(times or 1))]
