"""What this machine offers minigrad, and what to do about each thing that is missing."""

from __future__ import annotations

import importlib.util
import platform
import sys
from typing import NamedTuple

import numpy as np
from rich.markup import escape
from rich.table import Table
from threadpoolctl import threadpool_info

from minigrad import mnist
from minigrad.device import cuda_problem

from .launch import cores, find_mpiexec, load_mpi, mpi_problem
from .strategies import strategy_names


class Finding(NamedTuple):
    """One thing looked at; ``remedy`` is empty when it is well."""

    what: str
    found: str
    remedy: str = ""
    needed: bool = False


def examine() -> list[Finding]:
    """Look at everything; never raises, never uses the network."""
    return [
        *interpreter(),
        *blas(),
        *mpi(),
        *gpu(),
        *data(),
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
    findings = [
        Finding("mpiexec", str(mpiexec or "none beside this Python"), "" if mpiexec else mpi_problem() or "")
    ]
    if importlib.util.find_spec("mpi4py") is None:
        return [*findings, Finding("MPI", "mpi4py is not installed", mpi_problem() or "")]
    try:
        from .comm import mpi as transport

        load_mpi()
        return [*findings, Finding("MPI", transport.library_version())]
    except (ImportError, RuntimeError) as error:  # mpi4py without any libmpi
        remedy = "pip install mpich, or point MPI4PY_LIBMPI at your cluster's libmpi"
        return [*findings, Finding("MPI", str(error).splitlines()[0], remedy)]


def gpu() -> list[Finding]:
    problem = cuda_problem()
    return [Finding("GPU", "none usable" if problem else "a CUDA device, through CuPy", problem or "")]


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
        table.add_row(f"{finding.what}  {mark}", escape(finding.found), escape(finding.remedy))
    return table
