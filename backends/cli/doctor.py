"""Checks what this machine offers minigrad, and says how to install what is missing."""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import entry_points
from typing import NamedTuple

import numpy as np
from rich.markup import escape
from rich.table import Table
from threadpoolctl import threadpool_info

from minigrad import mnist
from minigrad.device import cuda_problem

from ..comm import run_ranks
from ..comm.wire import cuda_aware
from ..launch import slurm
from ..launch.launch import (
    THREAD_VARIABLES,
    cores,
    environment,
    find_mpiexec,
    load_mpi,
    mpi_problem,
    mpiexec_vendor,
    size_under_mpiexec,
    under_mpiexec,
)
from ..launch.launcher import WorldError, step_tasks
from ..launch.ping_pong import measure
from ..launch.supervise import supervise
from ..registry import strategy_names


class Finding(NamedTuple):
    """One check; ``remedy`` is empty when there is no problem."""

    what: str
    state: str
    remedy: str = ""
    needed: bool = False


def examine() -> list[Finding]:
    """Make all checks; never raises, never uses the network."""
    return [
        *interpreter(),
        *blas(),
        *mpi(),
        *in_slurm(),
        *ranks(),
        *links(),
        *gpu(),
        *data(),
        *(entry.load()() for entry in entry_points(group="minigrad.doctor")),
        Finding("strategies", ", ".join(strategy_names())),
    ]


def interpreter() -> list[Finding]:
    version = platform.python_version()
    remedy = "" if sys.version_info >= (3, 11) else "minigrad needs Python 3.11 or newer"
    return [
        Finding("Python", f"{version} at {sys.executable}", remedy, needed=True),
        Finding("cores", str(cores())),
        Finding("NumPy", np.__version__),
    ]


def blas() -> list[Finding]:
    pools = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
    if not pools:
        return [
            Finding("BLAS", "none that can be controlled", "set OPENBLAS_NUM_THREADS=1 for several ranks")
        ]
    texts = (
        f"{p['internal_api']} {p['version']}, {p['num_threads']} thread(s), {p.get('architecture')}"
        for p in pools
    )
    return [Finding("BLAS", "; ".join(texts))]


def mpi() -> list[Finding]:
    mpiexec = find_mpiexec()
    state = f"{mpiexec} ({mpiexec_vendor()})" if mpiexec else "none beside this Python"
    findings = [Finding("mpiexec", state, "" if mpiexec else mpi_problem() or "")]
    if importlib.util.find_spec("mpi4py") is None:
        return [*findings, Finding("MPI", "mpi4py is not installed", mpi_problem() or "")]
    try:
        return [*findings, Finding("MPI", mpi_version())]
    except WorldError as error:
        return [*findings, Finding("MPI", "another one than the launcher of this process has", str(error))]
    except (ImportError, RuntimeError, subprocess.TimeoutExpired) as error:  # mpi4py without any libmpi
        remedy = "pip install mpich, or point MPI4PY_LIBMPI at your cluster's libmpi"
        return [*findings, Finding("MPI", str(error).splitlines()[0], remedy)]


def in_slurm() -> list[Finding]:
    """Whether this process is in a Slurm job, how srun connects ranks, and how minigrad starts them."""
    if shutil.which("srun") is None:
        return [Finding("Slurm", "no srun on this machine")]
    job, tasks = slurm.find_job(), step_tasks()
    where = f"in job {job.number}: {job.nodes} node(s), {job.cpus} CPUs" if job else "not in a job"
    where = where if tasks is None else f"in a step of {tasks} task(s)"
    connects = (
        f"srun offers {', '.join(slurm.plugins()) or 'nothing'}, MpiDefault is {slurm.default_plugin()}"
    )
    srun = (job or slurm.Job("", 1, 0)).srun(mpiexec=find_mpiexec() is not None)
    if tasks is None and srun is not None:
        started = f"srun {srun[-1]}" if srun[-1].startswith("--mpi=") else "srun as it is set up here"
    else:
        started = "the mpiexec beside Python"
    if (tasks or 1) > 1:
        started = "nothing, since srun has started them"
    return [Finding("Slurm", f"{where}; {connects}; ranks are started by {started}")]


def mpi_version() -> str:
    """The MPI library's version.

    Outside an MPI job another process loads it: if this one were killed, MPI's shared memory would remain.
    """
    line = "from backends.comm import mpi; print(mpi.library_version())"
    if under_mpiexec():
        load_mpi()
        from ..comm import mpi as transport

        return transport.library_version()
    status, lines = answer([sys.executable, "-c", line])
    if status:
        raise RuntimeError([f"status {status}", *lines][-1])
    return lines[-1]


def answer(command: list[str]) -> tuple[int, list[str]]:
    """The command's exit status and the lines that it prints; raises TimeoutExpired after 30 seconds."""
    with tempfile.TemporaryFile("w+") as output:
        status = supervise(command, environment(2), seconds=30, output=output)
        output.seek(0)
        return status, output.read().strip().splitlines()


def ranks() -> list[Finding]:
    """How the ranks of this job, or one rank for each core, fit on the cores."""
    try:
        here, started = cores(), size_under_mpiexec()
    except WorldError as error:
        return [Finding("ranks", "the variables of this process contradict each other", str(error))]
    user_choice = next((os.environ[name] for name in THREAD_VARIABLES if name in os.environ), "")
    n = started or here
    threads = int(user_choice) if user_choice.isdigit() else max(1, here // n)
    state = f"{n} started, {here} cores" if started else f"up to {here} with a core each; more share cores"
    crowded = "start fewer: ranks without a core of their own wait for one another" if n > here else ""
    whose = f"{THREAD_VARIABLES[0]} or its like says {user_choice}" if user_choice else "as minigrad sets it"
    fewer = f"unset {', '.join(THREAD_VARIABLES)}, or set them to {max(1, here // n)}"
    return [
        Finding("ranks", state, crowded),
        Finding(
            "BLAS threads",
            f"{n} ranks x {threads} on {here} cores, {whose}",
            fewer if threads > 1 and n * threads > here else "",
        ),
    ]


def links() -> list[Finding]:
    """Latency and bandwidth between two ranks, for each transport of this machine."""
    findings = [Finding("thread ranks", speeds(run_ranks(2, measure)[0]))]
    if mpi_problem() or under_mpiexec():
        return findings
    ping_pong = [sys.executable, "-m", "mpi4py", "-m", "backends.launch.ping_pong"]
    try:
        status, lines = answer([str(find_mpiexec()), "-n", "2", *ping_pong])
        line = next((line for line in lines if line.startswith("{")), None)
        if line is not None:
            return [*findings, Finding("MPI ranks", speeds(json.loads(line)))]
        problem = [f"status {status}", *lines][-1]
    except subprocess.TimeoutExpired:
        problem = "no answer in 30 s"
    remedy = "one MPI per environment: reinstall mpi4py and mpich in a fresh one, or use --transport threads"
    return [*findings, Finding("MPI ranks", f"two of them did not talk: {problem}", remedy)]


def speeds(link: dict[str, float]) -> str:
    return f"{link['latency'] * 1e6:.0f} us, {link['bandwidth'] / 1e9:.1f} GB/s between two"


def gpu() -> list[Finding]:
    problem = cuda_problem()
    aware = "given to MPI as they are (MINIGRAD_CUDA_AWARE)" if cuda_aware() else "sent through host memory"
    wrong = "unset MINIGRAD_CUDA_AWARE: there is no GPU" if problem and cuda_aware() else ""
    return [
        Finding("GPU", "none usable" if problem else "a CUDA device, through CuPy", problem or ""),
        Finding("device arrays", aware, wrong),
    ]


def data() -> list[Finding]:
    try:
        digits = mnist.load("mnist5k")
        findings = [
            Finding("mnist5k", f"{len(digits.train):,} + {len(digits.test):,} digits, in the package")
        ]
    except (ValueError, OSError) as error:
        findings = [Finding("mnist5k", str(error), "install the package again", needed=True)]
    try:
        full = mnist.where_found()
        remedy = (
            ""
            if full
            else "downloaded at the first use, or set MINIGRAD_DATA to the folder of its four files"
        )
        return [*findings, Finding("mnist", full or "not on this machine", remedy)]
    except (ValueError, OSError) as error:
        return [*findings, Finding("mnist", str(error), "correct MINIGRAD_DATA")]


def report(findings: list[Finding]) -> Table:
    """The findings as a table, each problem with its remedy."""
    table = Table(title="minigrad doctor")
    for heading in ("", "found", "remedy"):
        table.add_column(heading, overflow="fold")
    for finding in findings:
        mark = (
            "[green]ok[/]"
            if not finding.remedy
            else "[red]needed[/]"
            if finding.needed
            else "[yellow]optional[/]"
        )
        table.add_row(f"{finding.what}  {mark}", escape(finding.state), escape(finding.remedy))
    return table
