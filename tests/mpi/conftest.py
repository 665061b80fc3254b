"""Real MPI: jobs that mpiexec starts, with a bound on their time and no process left behind."""

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from backends.launch.launch import environment, find_mpiexec, mpi_problem
from backends.process.sweep import sweep_memory

from .rank_pool import RankPool


@dataclass
class Job:
    """What an MPI job printed, and its exit status."""

    status: int
    out: str
    err: str


class Processes:
    """Runs jobs in ``folder``."""

    def __init__(self, folder):
        self.folder = folder

    def run(self, command: list[str], variables: dict[str, str] | None = None, seconds: float = 120) -> Job:
        """Run ``command`` in a process group of its own; end the whole group when the time is up."""
        start = time.time()
        with subprocess.Popen(
            command,
            cwd=self.folder,
            env={**environment(4), **(variables or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            start_new_session=True,
        ) as process:
            try:
                out, err = process.communicate(timeout=seconds)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGTERM)
                out, err = process.communicate(timeout=10)
                raise AssertionError(f"{command} did not end in {seconds} s\n{out}\n{err}") from None
        sweep_memory(start)
        return Job(process.returncode, out, err)

    @contextmanager
    def running(self, n: int, script: str, *command: str):
        """``command script.py`` while it runs, behind ``HELLO``: the process started, and the ranks' pids."""
        (self.folder / "script.py").write_text(HELLO + script, encoding="utf-8")
        start = time.time()
        process = subprocess.Popen(
            [*command, "script.py"],
            cwd=self.folder,
            env=environment(n),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            yield process, self.pids(n)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
                process.wait(20)
            sweep_memory(start)

    def pids(self, n: int, seconds: float = 30) -> list[int]:
        """The process ids of the ranks, in the order of their ranks."""
        files = [self.folder / f"{rank}.pid" for rank in range(n)]
        until(lambda: all(file.exists() and file.read_text(encoding="utf-8") for file in files), seconds)
        return [int(file.read_text(encoding="utf-8")) for file in files]

    def minigrad(self, *arguments: str, **variables: str) -> Job:
        """Run the command as a user would."""
        return self.run([sys.executable, "-m", "backends", *arguments], variables)

    def ranks(self, n: int, script: str, seconds: float = 120, **variables: str) -> Job:
        """Run ``script`` (the text of a Python program) on ``n`` MPI processes of its own."""
        (self.folder / "script.py").write_text(script, encoding="utf-8")
        command = [str(find_mpiexec()), "-n", str(n), sys.executable, "-m", "mpi4py", "script.py"]
        return self.run(command, {**environment(n), "OPENBLAS_NUM_THREADS": "1", **variables}, seconds)


# What a script for the pool begins with where it has a job of its own.
COMM = """from backends.comm.mpi import MPIComm
comm = MPIComm()
"""
HELLO = """import os, signal, sys, time
import numpy as np
from backends.comm.mpi import MPIComm
comm = MPIComm()
with open(f"{comm.rank}.pid", "w") as file:
    file.write(str(os.getpid()))
comm.barrier_with("for all ranks to have written their number")  # before one of them ends the others
"""


def until(true, seconds: float) -> None:
    """Wait for ``true()``; fail after ``seconds``."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, f"not within {seconds} s"
        time.sleep(0.02)


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and only waits to be counted does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture
def processes(tmp_path):
    return Processes(tmp_path)


@pytest.fixture(scope="session")
def pool():
    """Ranks for scripts that end well."""
    pool = RankPool()
    yield pool
    pool.close()


def pytest_collection_modifyitems(items):
    problem = mpi_problem()
    if problem and not os.environ.get("MINIGRAD_REQUIRE_MPI"):
        for item in items:
            if "mpi" in item.path.parts:
                item.add_marker(pytest.mark.skip(reason=problem))
