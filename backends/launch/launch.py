"""Starting ranks: as threads, or as processes by the mpiexec that lies beside this Python, or by srun."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from threadpoolctl import threadpool_limits

from minigrad.lookup import check_choice

from ..comm import Communicator, run_ranks
from ..comm.shared_memory import FEWER_CELLS, MPICH_BYTES, check_room_for_ranks, free_shared_memory
from ..grid import check_grid
from . import slurm
from .capacity import check_capacity, cores
from .launcher import (
    RANKS,
    WorldError,
    check_library,
    check_world,
    launcher,
    process_number,
    size_under_mpiexec,
    step_tasks,
    tell,
    under_mpiexec,
)
from .supervise import GRACE, supervise

if TYPE_CHECKING:
    from ..comm.mpi import MPIComm

TRANSPORTS = ("threads", "mpi")
CONNECTION = re.compile("PMI_|PMIX_(?!MCA_)")  # variables by which a rank finds the others
SCHEDULER_VARIABLES = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "PE_HOSTFILE", "HYDRA_HOST_FILE")
THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


def find_mpiexec() -> Path | None:
    """The mpiexec beside this Python: another would start another MPI than the one mpi4py loads."""
    folders = [Path(sys.executable).parent, Path(sys.prefix) / "bin", Path(sys.prefix) / "Library" / "bin"]
    names = [folder / name for folder in folders for name in ("mpiexec", "mpiexec.exe")]
    return next((path for path in names if path.exists()), None)


def mpi_problem(by_srun: bool = False) -> str | None:
    """Why ranks cannot be MPI processes, with the way out; None when they can.

    ``by_srun``: in a Slurm job srun may start them, where there is no mpiexec.
    """
    remedy = "pip install -e '.[mpi]' brings both, or use --transport threads"
    if importlib.util.find_spec("mpi4py") is None:
        return f"mpi4py is not installed; {remedy}"
    try:
        alone = not under_mpiexec()
    except WorldError as error:
        return str(error)
    srun = by_srun and slurm.find_job() and shutil.which("srun")
    if alone and not srun and find_mpiexec() is None:
        return f"there is no mpiexec beside {sys.executable}; {remedy}"
    return None


def choose_transport(asked: str | None, ranks: int) -> str:
    """The transport for ``ranks`` ranks: as asked, else MPI where it can be had, else threads.

    Raises ValueError for an unknown name, RuntimeError where MPI is asked for and missing, or threads by each
    of several processes.
    """
    if asked is not None:
        check_choice("transport", asked, TRANSPORTS)
    here = launcher()
    if asked == "threads" and here is not None and (here.size or here.rank + 1) > 1:
        raise WorldError(
            "--transport threads makes all ranks in one process, and each of those that were started would "
            "do it all; leave mpiexec or srun out, or --transport threads"
        )
    if asked == "threads" or (asked is None and (ranks == 1 or mpi_problem(by_srun=True))) and here is None:
        return "threads"
    if problem := mpi_problem(by_srun=True):
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
        mpiexec = "srun" if step_tasks() else "mpiexec"
        raise ValueError(
            f"--data {data} needs {data} ranks, {mpiexec} started {started}; "
            f"run {mpiexec} -n {data}, leave {mpiexec} out, or pass --data {started}"
        )
    return started or data or 1


def run(
    ranks: int,
    transport: str,
    work: Callable[[Communicator], Any],
    arguments: list[str],
    *,
    survive: bool = False,
) -> int:
    """Run ``work(comm)`` on every rank; the exit status.

    With MPI and outside mpiexec this starts ``mpiexec -n ranks minigrad arguments``, or srun in a Slurm job,
    whose processes come back here.
    """
    if transport == "threads":
        with threadpool_limits(max(1, cores() // ranks)):
            run_ranks(ranks, work, rank_0_here=True)
        return 0
    if not under_mpiexec():
        return start_mpiexec(ranks, ["-m", "backends", *arguments], survive)
    work_under_mpi(ranks, work)
    return 0


def check_room(ranks: int, transport: str, oversubscribe: bool) -> None:
    """Raise ValueError where this machine cannot hold the ranks that would be started on it."""
    if not under_mpiexec() and (transport == "threads" or slurm.find_job() is None):
        check_capacity(ranks, transport, oversubscribe)


def start_mpiexec(ranks: int, arguments: list[str], survive: bool = False, grace: float = 0.0) -> int:
    """Start ``ranks`` MPI processes of ``python arguments``, say how, and wait for their exit status."""
    job = slurm.find_job()
    command, variables = start_line(ranks, arguments, survive)
    where = f"in Slurm job {job.number}" if job else f"starting {ranks} ranks"
    short = {sys.executable: "python", str(find_mpiexec()): "mpiexec"}
    print(f"{where}: {shlex.join(short.get(word, word) for word in command)}", flush=True)
    return supervise(command, variables, grace=grace)


def start_line(ranks: int, arguments: list[str], survive: bool) -> tuple[list[str], dict[str, str]]:
    """The command that runs ``python arguments`` on ``ranks`` MPI processes, and its variables.

    In a Slurm job that is srun, where it can connect them, else mpiexec. Raises ValueError for more ranks
    than the job has CPUs.
    """
    python = [sys.executable, "-m", "backends.launch.rank", *arguments]
    told = {RANKS: str(ranks)}
    job = slurm.find_job()
    if job is None:
        check_shared_memory(ranks)
        return mpi_command(ranks, python, survive), on_this_machine(ranks) | told
    job.check(ranks)
    variables = environment(job.ranks_on_a_node(ranks))
    srun = None if survive else job.srun(mpiexec=find_mpiexec() is not None)
    if srun is not None:
        return [*srun, "-n", str(ranks), *python], variables | job.variables(ranks) | told
    if job.nodes > 1:  # this mpiexec starts a step, which must not take its ranks' connection upon itself
        variables = {name: value for name, value in variables.items() if name not in slurm.LOCAL}
        told["SLURM_MPI_TYPE"] = "none"
    return mpi_command(ranks, python, survive), variables | told


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
    wrapped = [sys.executable, "-m", "backends.launch.rank_wrapper", *command]
    return [start[0], "-disable-auto-cleanup", *start[1:], *wrapped]


def run_script(
    ranks: int,
    arguments: list[str],
    hosts: Path | None = None,
    survive: bool = False,
    oversubscribe: bool = False,
) -> int:
    """Run ``python arguments`` on ``ranks`` MPI processes; the exit status.

    With ``hosts``, a host file, it only prints the line that does: every host needs the same paths. With
    ``survive``, on this machine alone, ranks outlive one that is killed, if they know how.
    """
    if ranks < 1:
        raise ValueError(f"-n must be at least 1, got {ranks}")
    if under_mpiexec():
        raise RuntimeError(f"this is a rank of an MPI job already; run python {arguments[0]} itself")
    if arguments[0] not in ("-m", "-c") and not Path(arguments[0]).is_file():
        raise ValueError(f"there is no script {arguments[0]}; pass the path of a Python file")
    if problem := mpi_problem(by_srun=hosts is None):
        raise RuntimeError(f"minigrad run: {problem}")
    if hosts is not None:
        print(shlex.join([*on_hosts(hosts), "-n", str(ranks), sys.executable, "-m", "mpi4py", *arguments]))
        return 0
    check_room(ranks, "mpi", oversubscribe)
    if slurm.find_job() is not None:
        return start_mpiexec(ranks, arguments, survive, grace=GRACE)
    return supervise(*start_line(ranks, arguments, survive), grace=GRACE)


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
    inherited = dict(os.environ)
    if step_tasks():  # what connects this one task of srun is not its children's
        inherited = {name: value for name, value in inherited.items() if not CONNECTION.match(name)}
    return {**defaults, **slurm.local_variables(), **inherited}


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


def work_under_mpi(ranks: int, work: Callable[[Communicator], Any]) -> None:
    """Run ``work`` as one of the ``ranks`` of the MPI job that this process belongs to.

    Raises WorldError where MPI sees another number of them.
    """
    comm: MPIComm = load_mpi()()
    try:
        check_world(comm.size, ranks)
    except WorldError:
        if comm.rank:
            raise SystemExit(1) from None  # rank 0 says it for all
        raise
    given = any(name in os.environ for name in THREAD_VARIABLES)
    with threadpool_limits(None if given else max(1, cores() // comm.local_size)):
        work(comm)
        comm.close()


def load_mpi() -> type[MPIComm]:
    """The MPI transport, imported only when it is asked for: mpi4py is optional.

    Raises WorldError where what started this process does not speak to its MPI, which would abort.
    """
    here = launcher()
    if here is not None and find_mpiexec() is not None:
        check_library(here, mpiexec_vendor())
    from ..comm.mpi import MPIComm

    return MPIComm


def say(message: str) -> None:
    """Print one line of error; of several ranks that fail alike only one does."""
    rank = process_number()
    if rank and "mpi4py.MPI" in sys.modules:  # before that all ranks fail alike
        time.sleep(1)  # where rank 0 fails too, its abort comes first
        print(f"minigrad, rank {rank}: {message}", file=sys.stderr, flush=True)
    else:
        tell(message)
