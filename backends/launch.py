"""Starting ranks: as threads, or as processes under the mpiexec that lies beside this Python."""

from __future__ import annotations

import importlib.util
import os
import select
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from threadpoolctl import threadpool_limits

from .comm import Comm, run_ranks
from .comm.shared import FEWER_CELLS, MPICH_BYTES, check_room_for_ranks, free_shared_memory
from .grid import check_grid
from .supervise import supervise

if TYPE_CHECKING:
    from .comm.mpi import MPIComm

TRANSPORTS = ("threads", "mpi")
# What MPICH's hydra, Open MPI's mpiexec and Slurm tell the processes they start.
RANK_VARIABLES = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK")
SIZE_VARIABLES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE")
SCHEDULER_VARIABLES = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "PE_HOSTFILE", "HYDRA_HOST_FILE")
THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def under_mpiexec() -> bool:
    """Whether this process is a rank that an mpiexec started."""
    return any(name in os.environ for name in RANK_VARIABLES)


def rank_under_mpiexec() -> int | None:
    """This process's rank as its mpiexec tells it, without starting MPI; None where there is none."""
    return next((int(os.environ[name]) for name in RANK_VARIABLES if name in os.environ), None)


def only_rank_0() -> None:
    """Go on as the one process that a script without MPI needs: under an mpiexec the other ranks end here.

    MPICH's mpiexec looks, on a whole core, at the pipe of a rank that ended and never started MPI, until the
    job ends; so such a rank first takes leave as MPI's end does (``finalize`` of PMI-1, its answer awaited).
    """
    if not rank_under_mpiexec():
        return
    if {"HYDI_CONTROL_FD", "PMI_FD"} <= os.environ.keys():  # only MPICH's mpiexec sets both
        with suppress(OSError):
            os.write(pipe := int(os.environ["PMI_FD"]), b"cmd=finalize\n")
            select.select([pipe], [], [], 1)
    raise SystemExit


def size_under_mpiexec() -> int | None:
    """How many ranks this process's mpiexec started, where it tells."""
    return next((int(os.environ[name]) for name in SIZE_VARIABLES if name in os.environ), None)


def find_mpiexec() -> Path | None:
    """The mpiexec beside this Python: another would start another MPI than the one mpi4py loads."""
    folders = [Path(sys.executable).parent, Path(sys.prefix) / "bin", Path(sys.prefix) / "Library" / "bin"]
    names = [folder / name for folder in folders for name in ("mpiexec", "mpiexec.exe")]
    return next((path for path in names if path.exists()), None)


def mpi_problem() -> str | None:
    """Why ranks cannot be MPI processes, with the way out; None when they can."""
    remedy = "pip install -e '.[mpi]' brings both, or use --transport threads"
    if importlib.util.find_spec("mpi4py") is None:
        return f"mpi4py is not installed; {remedy}"
    if find_mpiexec() is None and not under_mpiexec():
        return f"there is no mpiexec beside {sys.executable}; {remedy}"
    return None


def choose_transport(asked: str | None, ranks: int) -> str:
    """The transport for ``ranks`` ranks: as asked, else MPI where it can be had, else threads.

    Raises ValueError for an unknown name, RuntimeError where MPI is asked for and missing.
    """
    if asked not in (None, *TRANSPORTS):
        raise ValueError(f"unknown transport {asked!r}; choose one of {', '.join(TRANSPORTS)}")
    if asked == "threads" or (asked is None and (ranks == 1 or mpi_problem())) and not under_mpiexec():
        return "threads"
    if problem := mpi_problem():
        raise RuntimeError(f"--transport mpi: {problem}")
    return "mpi"


def world_size(data: int | None, model: int = 1, pipe: int = 1) -> int:
    """How many ranks there will be: ``data`` x ``pipe`` x ``model``.

    Where ``data`` is None it is as large as the ranks that mpiexec started allow, and 1 without mpiexec.
    Raises ValueError where mpiexec started another number than is needed.
    """
    started = size_under_mpiexec()
    for flag, given in (("--data", data), ("--pipe", pipe), ("--model", model)):
        if given is not None and given < 1:
            raise ValueError(f"{flag} must be at least 1, got {given}")
    if pipe * model > 1:
        data = data or max((started or 1) // (pipe * model), 1)
        check_grid(started or data * pipe * model, data=data, pipe=pipe, model=model)
        return data * pipe * model
    if started is not None and data not in (None, started):
        raise ValueError(
            f"--data {data} needs {data} ranks, mpiexec started {started}; "
            f"run mpiexec -n {data}, leave mpiexec out, or pass --data {started}"
        )
    return started or data or 1


def run(
    ranks: int, transport: str, work: Callable[[Comm], Any], arguments: list[str], *, survive: bool = False
) -> int:
    """Run ``work(comm)`` on every rank; the exit status.

    With MPI and outside mpiexec this starts ``mpiexec -n ranks minigrad arguments``, whose processes
    come back here.
    """
    if transport == "threads":
        with threadpool_limits(max(1, cores() // ranks)):
            run_ranks(ranks, work)
        return 0
    if not under_mpiexec():
        return start_mpiexec(ranks, ["-m", "backends.cli", *arguments], survive)
    work_under_mpi(work)
    return 0


def start_mpiexec(ranks: int, arguments: list[str], survive: bool = False) -> int:
    """Start ``ranks`` MPI processes of ``python arguments`` and wait for them; mpiexec's exit status."""
    command = mpi_command(ranks, [sys.executable, "-m", "mpi4py", *arguments], survive)
    check_shared_memory(ranks)
    print(f"starting {ranks} ranks: mpiexec -n {ranks} python -m mpi4py {' '.join(arguments)}", flush=True)
    return supervise(command, on_this_machine(ranks))


def mpi_command(ranks: int, command: list[str], survive: bool = False) -> list[str]:
    """The line that runs ``command`` on ``ranks`` processes; ``survive``: one may be killed, the rest go on.

    RuntimeError for ``survive`` with another mpiexec than MPICH's.
    """
    start = [str(find_mpiexec()), "-n", str(ranks)]
    if not survive:
        return [*start, *command]
    if (vendor := mpiexec_vendor()) != "MPICH":
        raise RuntimeError(
            f"only MPICH's mpiexec lets ranks outlive one that is killed, this is {vendor}'s; "
            "pip install mpich, or leave survive out"
        )
    return [start[0], "-disable-auto-cleanup", *start[1:], sys.executable, "-m", "backends.shield", *command]


def run_script(ranks: int, arguments: list[str], hosts: Path | None = None, survive: bool = False) -> int:
    """Run ``python arguments`` on ``ranks`` MPI processes, through srun inside a Slurm job; the exit status.

    With ``hosts``, a host file, it only prints the line that does: every host needs the same paths. With
    ``survive``, on this machine alone, ranks outlive one that is killed, if they know how.
    """
    if ranks < 1:
        raise ValueError(f"-n must be at least 1, got {ranks}")
    if under_mpiexec():
        raise RuntimeError(f"this is a rank of an MPI job already; run python {arguments[0]} itself")
    if arguments[0] not in ("-m", "-c") and not Path(arguments[0]).is_file():
        raise ValueError(f"there is no script {arguments[0]}; pass the path of a Python file")
    srun = shutil.which("srun") if "SLURM_JOB_ID" in os.environ else None
    if (srun is None or hosts is not None) and (problem := mpi_problem()):
        raise RuntimeError(f"minigrad run: {problem}")
    python = [sys.executable, "-m", "mpi4py", *arguments]
    if hosts is not None:
        print(shlex.join([*on_hosts(hosts), "-n", str(ranks), *python]))
        return 0
    if srun is not None:
        print(f"in Slurm job {os.environ['SLURM_JOB_ID']}: srun -n {ranks} {shlex.join(python)}", flush=True)
        return supervise([srun, "-n", str(ranks), *python], dict(os.environ))
    check_shared_memory(ranks)
    return supervise(mpi_command(ranks, python, survive), on_this_machine(ranks))


def on_hosts(hosts: Path) -> list[str]:
    """The start of the line that runs ranks on the hosts of a host file."""
    if not hosts.is_file():
        raise ValueError(f"there is no host file {hosts}; write one host name per line")
    if mpiexec_vendor() == "Open MPI":
        return [str(find_mpiexec()), "--hostfile", str(hosts), "--map-by", "node", "--bind-to", "none"]
    return [str(find_mpiexec()), "-f", str(hosts)]


def mpiexec_vendor() -> str:
    """Whose mpiexec lies beside this Python, as it says itself: "MPICH", "Open MPI" or "unknown"."""
    text = subprocess.run([str(find_mpiexec()), "--version"], capture_output=True, text=True).stdout
    for vendor, sign in (("Open MPI", "Open MPI"), ("MPICH", "HYDRA"), ("MPICH", "MPICH")):
        if sign in text:
            return vendor
    return "unknown"


def environment(ranks: int) -> dict[str, str]:
    """This process's variables, with what ``ranks`` processes on one machine need."""
    threads = str(max(1, cores() // ranks))
    defaults = dict.fromkeys(THREAD_VARIABLES, threads)
    defaults |= {  # Open MPI's wheel: root, more ranks than cores, no binding, no 1 s start, working windows
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
        "PRTE_MCA_hwloc_default_binding_policy": "none",
        "OMPI_MCA_btl": "^ofi",
        "OMPI_MCA_osc": "^ucx",
    }
    if ranks > cores():
        defaults["MPIR_CVAR_ENABLE_HEAVY_YIELD"] = "1"  # MPICH: waiting ranks really sleep
    return {**defaults, **os.environ}


def on_this_machine(ranks: int) -> dict[str, str]:
    """The ``environment`` of ranks that mpiexec starts here, which need no network: none of them listens.

    In a job of a cluster's scheduler mpiexec may start them elsewhere too, and they keep the network.
    """
    if any(name in os.environ for name in SCHEDULER_VARIABLES):
        return environment(ranks)
    # UCX, which MPICH stands on, also notes all memory that a process gives back, and never forgets it where
    # there is no network's registration to undo: without its events a rank does not grow with its steps.
    return {"UCX_TLS": "^tcp", "UCX_MEM_EVENTS": "n", **environment(ranks)}


def check_shared_memory(ranks: int) -> None:
    """Raise RuntimeError where MPICH would find too little shared memory for ``ranks`` processes here."""
    free = free_shared_memory()
    if FEWER_CELLS in os.environ or free >= ranks * MPICH_BYTES or mpiexec_vendor() != "MPICH":
        return
    check_room_for_ranks(ranks, free)


def work_under_mpi(work: Callable[[Comm], Any]) -> None:
    """Run ``work`` as one rank of the MPI job that this process belongs to."""
    comm: MPIComm = load_mpi()()
    given = any(name in os.environ for name in THREAD_VARIABLES)
    with threadpool_limits(None if given else max(1, cores() // comm.local_size)):
        work(comm)
        comm.close()


def load_mpi() -> type[MPIComm]:
    """The MPI transport, imported only when it is asked for: mpi4py is optional."""
    from .comm.mpi import MPIComm

    return MPIComm


def say(message: str) -> None:
    """Print one line of error; of several ranks that fail alike only rank 0 does."""
    rank = rank_under_mpiexec()
    if not rank:
        print(f"minigrad: {message}", file=sys.stderr, flush=True)
    elif "mpi4py.MPI" in sys.modules:  # before that all ranks fail alike
        time.sleep(1)  # where rank 0 fails too, its abort comes first
        print(f"minigrad, rank {rank}: {message}", file=sys.stderr, flush=True)
