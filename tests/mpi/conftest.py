"""Real MPI: every test here starts mpiexec, with a bound on its time and no process left behind."""

import os
import signal
import subprocess
import sys
from dataclasses import dataclass

import pytest

from backends.launch import environment, find_mpiexec, mpi_problem


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
        with subprocess.Popen(
            command,
            cwd=self.folder,
            env={**os.environ, **(variables or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                out, err = process.communicate(timeout=seconds)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGTERM)
                out, err = process.communicate(timeout=10)
                raise AssertionError(f"{command} did not end in {seconds} s\n{out}\n{err}") from None
        return Job(process.returncode, out, err)

    def minigrad(self, *arguments: str, **variables: str) -> Job:
        """Run the command as a user would."""
        return self.run([sys.executable, "-m", "backends.cli", *arguments], variables)

    def ranks(self, n: int, script: str, **variables: str) -> Job:
        """Run ``script`` (the text of a Python program) on ``n`` MPI processes."""
        (self.folder / "script.py").write_text(script)
        command = [str(find_mpiexec()), "-n", str(n), sys.executable, "-m", "mpi4py", "script.py"]
        return self.run(command, {**environment(n), "OPENBLAS_NUM_THREADS": "1", **variables})


@pytest.fixture
def processes(tmp_path):
    return Processes(tmp_path)


def pytest_collection_modifyitems(items):
    problem = mpi_problem()
    if problem and not os.environ.get("MINIGRAD_REQUIRE_MPI"):
        for item in items:
            if "mpi" in item.path.parts:
                item.add_marker(pytest.mark.skip(reason=problem))
