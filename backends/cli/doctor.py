"""Checks what this machine offers minigrad, and says how to install what is missing."""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.metadata import entry_points, version
from pathlib import Path
from textwrap import wrap
from typing import Annotated, NamedTuple

import numpy as np
import typer
from rich.text import Text
from threadpoolctl import threadpool_info

from minigrad import loops, mnist
from minigrad.device import cuda_problem
from minigrad.text import course

from ..comm import run_ranks
from ..comm.collectives.link import measure_ring
from ..comm.wire import cuda_aware
from ..launch import launch, slurm
from ..launch.ping_pong import Links, measure_links
from ..launch.supervise import supervise
from ..process.cores import THREAD_VARIABLES, cores, ranks_here
from ..process.launcher import WorldError, size_under_mpiexec, step_tasks, under_mpiexec
from ..registry import strategy_names
from ..words import counted
from .console import new_console
from .link_report import as_values, conclusion, link_table
from .next_command import NextCommand
from .run_folder import Json, check_writable, write_json
from .slurm_command import starter

HOSTS_SECONDS = 120  # within which ranks on other hosts start and measure their links


class Finding(NamedTuple):
    """One check; ``remedy`` is empty when there is no problem."""

    what: str
    state: str
    remedy: str = ""
    needed: bool = False


def examine() -> list[Finding]:
    """Make all checks; never raises, never uses the network."""
    checks = [interpreter, blas, mpi, in_slurm, ranks, links, gpu, data]
    checks += [entry.load() for entry in entry_points(group="minigrad.doctor")]
    findings = [finding for check in checks for finding in check()]
    return [*findings, Finding("strategies", ", ".join(strategy_names()))]


def interpreter() -> Iterator[Finding]:
    yield Finding("Python", f"{platform.python_version()} at {sys.executable}")
    yield Finding("cores", str(cores()))
    yield Finding("NumPy", np.__version__)
    if problem := loops.problem():
        yield Finding("Numba", "none: normalisations, pools and others take 2 to 5 times as long", problem)
    else:
        yield Finding("Numba", version("numba"))


def blas() -> Iterator[Finding]:
    texts = [
        f"{p['internal_api']} {p['version']}, {counted(p['num_threads'], 'thread')}, {p.get('architecture')}"
        for p in threadpool_info()
        if p["user_api"] == "blas"
    ]
    remedy = "" if texts else "set OPENBLAS_NUM_THREADS=1 for several ranks"
    yield Finding("BLAS", "; ".join(texts) or "none that can be controlled", remedy)


def mpi() -> Iterator[Finding]:
    mpiexec = launch.find_mpiexec()
    state = f"{mpiexec} ({launch.mpiexec_vendor()})" if mpiexec else "none beside this Python"
    yield Finding("mpiexec", state, "" if mpiexec else launch.mpi_problem() or "")
    if importlib.util.find_spec("mpi4py") is None:
        yield Finding("MPI", "mpi4py is not installed", launch.mpi_problem() or "")
        return
    try:
        yield Finding("MPI", mpi_version())
    except WorldError as error:
        yield Finding("MPI", "another one than the launcher of this process has", str(error))
    except (ImportError, RuntimeError, subprocess.TimeoutExpired) as error:  # mpi4py without any libmpi
        remedy = "pip install mpich, or point MPI4PY_LIBMPI at your cluster's libmpi"
        yield Finding("MPI", str(error).splitlines()[0], remedy)


def in_slurm() -> Iterator[Finding]:
    """Whether this process is in a Slurm job, how srun connects ranks, and how minigrad starts them."""
    if shutil.which("srun") is None:
        yield Finding("Slurm", "no srun on this machine")
        return
    job, tasks = slurm.find_job(), step_tasks()
    where = "not in a job" if tasks is None else f"in a step of {counted(tasks, 'task')}"
    if tasks is None and job:
        where = f"in job {job.number}: {counted(job.nodes, 'node')}, {counted(job.cpus, 'CPU')}"
    plugins = ", ".join(slurm.plugins()) or "nothing"
    connects = f"srun offers {plugins}, MpiDefault is {slurm.default_plugin()}"
    started = starter(job) if tasks is None else "the mpiexec beside Python"
    if (tasks or 1) > 1:
        started = "nothing, since srun has started them"
    yield Finding("Slurm", f"{where}; {connects}; ranks are started by {started}")


def mpi_version() -> str:
    """The MPI library's version.

    Outside an MPI job another process loads it: if this one were killed, MPI's shared memory would remain.
    """
    line = "from backends.comm import mpi; print(mpi.library_version())"
    if under_mpiexec():
        launch.load_mpi()
        from ..comm import mpi as transport

        return transport.library_version()
    status, lines = answer([sys.executable, "-c", line])
    if status:
        raise RuntimeError([f"status {status}", *lines][-1])
    return lines[-1]


def answer(
    command: list[str], variables: dict[str, str] | None = None, seconds: float = 30
) -> tuple[int, list[str]]:
    """The command's exit status and the lines that it prints; raises TimeoutExpired after ``seconds``."""
    variables = (variables or launch.environment(2)) | launch.own_modules()
    with tempfile.TemporaryFile("w+", encoding="utf-8") as output:
        status = supervise(command, variables, seconds=seconds, output=output)
        output.seek(0)
        return status, output.read().strip().splitlines()


def ping_pong(
    options: list[str], variables: dict[str, str] | None = None, seconds: float = 30
) -> tuple[int, Links | None, str]:
    """The status of mpiexec with these options, the links that its ranks measure, and its last line."""
    command = [str(launch.find_mpiexec()), *options, sys.executable, "-m", "mpi4py"]
    status, lines = answer([*command, "-m", "backends.launch.ping_pong"], variables, seconds)
    line = next((line for line in lines if line.startswith("{")), None)
    return status, Links.read(line) if line else None, [f"status {status}", *lines][-1]


def ranks() -> Iterator[Finding]:
    """How the ranks of this job, or one rank for each core, fit on the cores."""
    try:
        here, started = cores(), size_under_mpiexec()
    except WorldError as error:
        yield Finding("ranks", "the variables of this process contradict each other", str(error))
        return
    n = (ranks_here() or started) if started else here
    state = f"{n} started, {here} cores" if started else f"up to {here} with a core each; more share cores"
    crowded = "start fewer: ranks without a core of their own wait for one another" if n > here else ""
    yield Finding("ranks", state, crowded)
    setting = next((os.environ[name] for name in THREAD_VARIABLES if name in os.environ), "")
    threads = int(setting) if setting.isdecimal() else launch.default_threads(n)
    own = f"as minigrad sets it; {THREAD_VARIABLES[0]} changes it"
    source = f"{THREAD_VARIABLES[0]} or its like says {setting}" if setting else own
    fewer = f"unset {', '.join(THREAD_VARIABLES)}, or set them to {max(1, here // n)}"
    remedy = fewer if threads > 1 and n * threads > here else ""
    yield Finding("BLAS threads", f"{n} ranks x {threads} on {here} cores, {source}", remedy)


def links() -> Iterator[Finding]:
    """Latency and bandwidth between two ranks, for each transport of this machine."""
    of_threads = run_ranks(2, measure_ring)[0]
    if of_threads is not None:
        yield Finding("thread ranks", f"{of_threads.words()} between two")
    if launch.mpi_problem() or under_mpiexec():
        return
    try:
        _, measured, problem = ping_pong(["-n", "2"])
        if measured is not None:
            link = measured.pairs[0].link.words()
            yield Finding("MPI ranks", f"{link} between two; {conclusion(measured)}")
            return
    except subprocess.TimeoutExpired:
        problem = "no answer in 30 s"
    remedy = "one MPI per environment: reinstall mpi4py and mpich in a fresh one, or use --transport threads"
    yield Finding("MPI ranks", f"two of them could not communicate: {problem}", remedy)


def links_of_hosts(hosts: Path) -> Links:
    """The links between the hosts in a file, a rank on each; ValueError or RuntimeError where they fail."""
    if not hosts.is_file():
        raise ValueError(f"there is no host file {hosts}; write one host name per line")
    try:
        text = hosts.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{hosts} is no text in UTF-8 ({error}); write one host name per line") from None
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    names = [re.split(r"[\s:]", line)[0] for line in lines if line]
    if len(names) < 2:
        raise ValueError(f"{hosts} has {counted(len(names), 'host')}, and a link needs two; add host names")
    for name in names:
        try:
            socket.getaddrinfo(name, None)
        except OSError:
            raise ValueError(f"the host {name} in {hosts} has no address; correct its name") from None
    if problem := launch.mpi_problem():
        raise RuntimeError(f"--hosts: {problem}")
    on_each = ["-f", str(hosts), "-ppn", "1"]
    if launch.mpiexec_vendor() == "Open MPI":
        on_each = ["--hostfile", str(hosts), "--map-by", "node", "--bind-to", "none"]
    variables = launch.environment(len(names), one_machine=False)
    try:
        status, measured, last = ping_pong([*on_each, "-n", str(len(names))], variables, HOSTS_SECONDS)
    except subprocess.TimeoutExpired:
        raise RuntimeError(
            f"the hosts in {hosts} did not answer in {HOSTS_SECONDS} s; try ssh to each of them"
        ) from None
    if status or measured is None:
        raise RuntimeError(f"the hosts in {hosts} could not communicate: {last}; try ssh to each of them")
    return measured


def gpu() -> Iterator[Finding]:
    problem = cuda_problem()
    yield Finding("GPU", "none usable" if problem else "a CUDA device, through CuPy", problem or "")
    aware = "passed to MPI directly (MINIGRAD_CUDA_AWARE)" if cuda_aware() else "sent through host memory"
    wrong = "unset MINIGRAD_CUDA_AWARE: there is no GPU" if problem and cuda_aware() else ""
    yield Finding("device arrays", aware, wrong)


def data() -> Iterator[Finding]:
    try:
        digits = mnist.load("mnist5k")
        state = f"{len(digits.train):,} + {len(digits.test):,} digits, in the package"
        yield Finding("mnist5k", state)
    except (ValueError, OSError) as error:
        yield Finding("mnist5k", str(error), "install the package again", needed=True)
    try:
        yield Finding("text", f"{len(course()):,} symbols of this course, in the package")
    except (ValueError, OSError) as error:
        yield Finding("text", str(error), "install the package again", needed=True)
    try:
        folder = mnist.where_found()
        remedy = "downloaded at the first use, or set MINIGRAD_DATA to the folder of its four files"
        yield Finding("mnist", folder or "not on this machine", "" if folder else remedy)
    except (ValueError, OSError) as error:
        yield Finding("mnist", str(error), "correct MINIGRAD_DATA")


def report(findings: list[Finding], columns: int = 80) -> Text:
    """The findings, one below the other, each problem with its remedy; the last line sums up."""
    text = Text()
    width = max(len(finding.what) for finding in findings)
    missing = [finding for finding in findings if finding.remedy]
    needed = [finding for finding in missing if finding.needed]
    for finding in findings:
        mark, color = "ok", "green"
        if finding.remedy:
            mark, color = ("needed", "red") if finding.needed else ("optional", "yellow")
        text.append(f"{mark:8}  ", color)
        text.append(f"{finding.what:{width}}  ", "bold")
        text.append(hanging(finding.state, width + 12, columns))
        if finding.remedy:
            text.append("\n" + (width + 12) * " " + hanging(f"remedy: {finding.remedy}", width + 12, columns))
        text.append("\n")
    if needed:
        text.append(f"needed: {', '.join(finding.what for finding in needed)}; see above", "bold red")
        return text
    text.append("everything needed is here", "bold green")
    if missing:
        text.append(f"; optional: {', '.join(finding.what for finding in missing)}")
    return text


def hanging(text: str, margin: int, columns: int) -> str:
    """The text in lines that begin below one another after a ``margin``; no word, so no path, is cut."""
    width = max(columns - margin, 20)
    lines = [wrap(line, width, break_long_words=False, break_on_hyphens=False) for line in text.splitlines()]
    return f"\n{' ' * margin}".join(part for parts in lines for part in parts)


def doctor(
    hosts: Annotated[
        Path | None, typer.Option(help="measure the links between the hosts in this file")
    ] = None,
    json: Json = None,
) -> None:
    """Check what this machine offers, and how to install what is missing.

    As ranks of mpiexec or srun, or with --hosts, it measures the link of each pair of ranks, too.
    """
    check_writable(json)
    links = None
    if (size_under_mpiexec() or 1) > 1:
        comm = launch.load_mpi()()
        links = measure_links(comm)
        comm.close()
        if comm.rank > 0:
            return
    elif hosts is not None:
        links = links_of_hosts(hosts)
    findings = [] if hosts is not None else examine()
    console = new_console()
    if findings:
        console.print(report(findings, console.width), soft_wrap=True)
    if links is not None:
        console.print(link_table(links))
        console.print(conclusion(links), highlight=False, soft_wrap=True)
    if json is not None:
        values = {"findings": [finding._asdict() for finding in findings]}
        write_json(json, values | ({} if links is None else as_values(links)))
    if any(f.needed and f.remedy for f in findings):
        sys.exit(1)
    if links is not None:
        NextCommand("minigrad lesson 05", "what a message costs on a link").show(console)
    else:
        NextCommand("minigrad train --data 2", "train on two ranks").show(console)
