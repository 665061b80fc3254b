"""Laws of backends/comm/mpi.py and mpi_wait.py: however a job ends, all of it ends, no rank waits for
ever, and no process is left behind.
"""

import os
import re
import signal
import sys
from pathlib import Path

import pytest

from backends.launch.launch import find_mpiexec

from .conftest import HELLO, alive, until

RUN = [sys.executable, "-m", "backends", "run", "-n"]
ROOT = Path(__file__).parents[2]
# Rank 1 is killed before rank 0 reads its message; meanwhile mpiexec's process, their parent, is stopped.
KILLED_SENDER = """
import os, signal, sys, time
import numpy as np
from backends.comm import mpi
from tests.bugs.mutant import mutant

mpi.BoundedWait = mutant("backends.comm.mpi_wait", *{change!r}).BoundedWait
comm = mpi.MPIComm()
comm.barrier_with("for both")
if comm.rank == 1:
    done = comm.start_send(np.ones(1_000_000), 0, tag=3)
    os.kill(os.getppid(), signal.SIGSTOP)
    os.kill(os.getpid(), signal.SIGKILL)
time.sleep(0.5)
start = time.monotonic()
try:
    comm.recv(1, tag=3)
except Exception as error:
    text = f"{{type(error).__name__}} after {{time.monotonic() - start:.2f}} s: {{error}}"
with open("error", "w") as file:
    file.write(text)
os.kill(os.getppid(), signal.SIGCONT)
"""
NAMES_THE_SENDER = (
    r"RuntimeError after [1-9][\d.]* s: rank 0 waited to receive from rank 1 \(tag 3\) at .*:\d+, "
    r"but MPI failed \([^:\n]+\): the process of another rank has probably been killed; see .*"
)
WAIT_BUGS = {
    "MPI's own error": ("if self.detector is None and", "if self.detector is None or"),
    "before mpiexec can end the job": ("self.wait_for_end_of_job(what)", "pass"),
}


def error_of_rank_0(processes, *change: tuple[str, str]) -> str:
    processes.ranks(2, KILLED_SENDER.format(change=change), seconds=30, PYTHONPATH=str(ROOT))
    return (processes.folder / "error").read_text(encoding="utf-8")


def test_a_read_from_a_killed_rank_names_the_rank_waited_for(processes):
    error = error_of_rank_0(processes)
    assert re.fullmatch(NAMES_THE_SENDER, error), error


@pytest.mark.parametrize("bug", WAIT_BUGS)
def test_the_law_of_killed_ranks_catches(processes, bug):
    error = error_of_rank_0(processes, WAIT_BUGS[bug])
    assert not re.fullmatch(NAMES_THE_SENDER, error), error


def test_the_exception_of_one_rank_ends_all(processes):
    script = "if comm.rank == 1: raise ZeroDivisionError('of rank 1')\ncomm.recv(1)\n"
    job = processes.ranks(3, "from backends.comm.mpi import MPIComm\ncomm = MPIComm()\n" + script)
    assert job.status != 0 and "ZeroDivisionError: of rank 1" in job.err
    mpiexec = [str(find_mpiexec()), "-n", "3", sys.executable, "-m", "mpi4py"]
    with processes.running(3, script, *mpiexec) as (running, pids):
        assert running.wait(5) != 0
        until(lambda: not any(alive(pid) for pid in pids), 5)


@pytest.mark.parametrize(
    "start", [["mpiexec", "-n", "3", sys.executable, "-m", "mpi4py"], [*RUN, "3"]], ids=["mpiexec", "run"]
)
def test_a_rank_that_is_killed_takes_the_others_with_it(processes, start):
    start = [str(find_mpiexec()), *start[1:]] if start[0] == "mpiexec" else start
    with processes.running(3, "comm.recv(1) if comm.rank != 1 else time.sleep(60)\n", *start) as (job, pids):
        os.kill(pids[1], signal.SIGKILL)
        assert job.wait(10) != 0
        until(lambda: not any(alive(pid) for pid in pids), 5)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_run_passes_signals_on_and_leaves_nobody(processes, number):
    with processes.running(2, "time.sleep(60)\n", *RUN, "2") as (job, pids):
        job.send_signal(number)
        assert job.wait(15) == 128 + number
        until(lambda: not any(alive(pid) for pid in pids), 5)


def test_run_ends_ranks_that_ignore_signals(processes):
    script = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nopen(f'{comm.rank}.deaf', 'w')\ntime.sleep(60)\n"
    with processes.running(2, script, *RUN, "2") as (job, pids):
        until(lambda: all((processes.folder / f"{rank}.deaf").exists() for rank in range(2)), 10)
        job.send_signal(signal.SIGTERM)
        assert job.wait(20) == 128 + signal.SIGTERM
        until(lambda: not any(alive(pid) for pid in pids), 5)


def test_run_passes_arguments_and_the_exit_status_through(processes):
    (processes.folder / "script.py").write_text(
        "import sys\nfrom backends.comm.mpi import MPIComm\ncomm = MPIComm()\n"
        "sys.stdout.write(f'{comm.rank} {comm.size} {sys.argv[1:]}\\n')\nsys.exit(int(sys.argv[1]))\n",
        encoding="utf-8",
    )
    arguments = ["0", "-n", "5", "--lr=3", "--", "x"]
    job = processes.minigrad("run", "-n", "2", "script.py", *arguments)
    assert job.status == 0, job.err
    assert sorted(job.out.splitlines()) == [f"{rank} 2 {arguments}" for rank in range(2)]
    assert processes.minigrad("run", "-n", "2", "script.py", "3").status == 3


def test_run_prints_the_line_for_a_host_file(processes):
    for name in ("hosts", "script.py"):
        (processes.folder / name).write_text("", encoding="utf-8")
    job = processes.minigrad("run", "-n", "4", "--hosts", "hosts", "script.py", "a b")
    assert job.status == 0, job.err
    assert job.out.startswith(str(find_mpiexec())) and " hosts " in job.out
    assert job.out.strip().endswith(f"-n 4 {sys.executable} -m mpi4py script.py 'a b'")


def test_run_passes_arguments_to_srun_and_its_status_through(processes):
    """Without SLURM_JOB_CPUS_PER_NODE the number of ranks is for srun to judge."""
    (processes.folder / "script.py").write_text("", encoding="utf-8")
    srun = processes.folder / "srun"
    srun.write_text("#!/bin/sh\necho srun: $@\nexit 5\n", encoding="utf-8")
    srun.chmod(0o755)
    path = f"{processes.folder}:{os.environ['PATH']}"
    variables = {"SLURM_JOB_ID": "77", "SLURM_MPI_TYPE": "pmi2", "PATH": path}
    job = processes.minigrad("run", "-n", "4", "script.py", "a b", **variables)
    assert job.status == 5
    options = "--kill-on-bad-exit --quit-on-interrupt --export=ALL -n 4"
    assert job.out.splitlines() == [
        f"in Slurm job 77: srun {options} python -m backends.process.rank script.py 'a b'",
        f"srun: {options} {sys.executable} -m backends.process.rank script.py a b",
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["-n", "2", "nowhere.py"],
            "minigrad: there is no script nowhere.py; pass the path of a Python file",
        ),
        (["-n", "0", "x.py"], "minigrad: -n must be at least 1, got 0"),
    ],
)
def test_run_says_what_is_wrong_in_one_line(processes, arguments, message):
    job = processes.minigrad("run", *arguments)
    assert job.status == 1 and job.err.strip() == message


def test_doctor_measures_the_link_between_two_processes(processes):
    job = processes.minigrad("doctor", COLUMNS="200")
    assert job.status == 0, job.err
    (line,) = [line for line in job.out.splitlines() if "MPI ranks" in line]
    assert "us," in line and "GB/s between two" in line


@pytest.mark.parametrize(("who", "call"), [(0, "comm.recv(0)"), (1, "comm.allreduce(np.ones(3))")])
def test_a_rank_that_exits_is_named_to_those_that_wait_for_it(processes, who, call):
    """With status 0 it is no error to mpiexec, and its MPI waits at its end for the others."""
    script = f"if comm.rank == {who}: sys.exit(0)\n{call}\n"
    (processes.folder / "script.py").write_text(HELLO + script, encoding="utf-8")
    job = processes.minigrad("run", "-n", "3", "script.py")
    assert job.status == 1 and f"but rank {who}'s program is over" in job.err, job.err


def test_a_rank_may_be_done_before_the_others(processes):
    """What it has sent is still received."""
    script = "if comm.rank == 0: comm.send(np.ones(3), 1); comm.close(); sys.exit(0)\ntime.sleep(2.5)\n"
    script += "assert comm.rank != 1 or comm.recv(0).sum() == 3\n"
    (processes.folder / "script.py").write_text(HELLO + script, encoding="utf-8")
    job = processes.minigrad("run", "-n", "2", "script.py")
    assert job.status == 0, job.err
