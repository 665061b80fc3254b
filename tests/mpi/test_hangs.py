"""MPI processes that hang under a launcher of minigrad: all ranks report, also those that do not wait."""

import re

import pytest

START = """import sys, time
import numpy as np
from backends.comm.mpi import MPIComm

def computes():
    time.sleep(100)

def stops(comm, rank):
    {program}

comm = MPIComm()
comm.allreduce(np.ones(3))
stops(comm, comm.rank)
"""
PROGRAMS = {  # what each rank does, the rank that stops first, and what each rank says
    "a rank computes for ever": (
        "computes() if rank == 2 else comm.recv((rank + 1) % 3, tag=4)",
        2,
        {
            0: "waits, since [\\d:]+, to receive from rank 1 \\(tag 4\\) at script.py:9",
            1: "waits, since [\\d:]+, to receive from rank 2 \\(tag 4\\) at script.py:9",
            2: "does not wait: it is at script.py:6, in computes",
        },
    ),
    "a message never comes": (
        "comm.recv(0, tag=7) if rank == 1 else [time.sleep(0.5), comm.split(0)]",
        1,
        {
            0: "waits, since [\\d:]+, for all ranks to split at script.py:9",
            1: "waits, since [\\d:]+, to receive from rank 0 \\(tag 7\\) at script.py:9",
            2: "waits, since [\\d:]+, for all ranks to split at script.py:9",
        },
    ),
}


@pytest.mark.parametrize("kind", PROGRAMS)
def test_all_ranks_report_and_the_first_that_stopped_is_named(processes, kind):
    program, first, states = PROGRAMS[kind]
    (processes.folder / "script.py").write_text(START.format(program=program), encoding="utf-8")
    job = processes.minigrad("run", "-n", "3", "script.py", MINIGRAD_TIMEOUT="1.5")
    assert job.status == 1 and "Traceback" not in job.err, job.err
    for rank, words in states.items():
        assert re.search(rf"^  rank {rank} {words}$", job.err, re.MULTILINE), (words, job.err)
    assert f"\n  rank {first} stopped first; check that every rank makes the same calls and that " in job.err
    (file,) = re.findall(r"the stacks of all ranks are in (runs/\S+-stacks\.txt)$", job.err, re.MULTILINE)
    stacks = (processes.folder / file).read_text(encoding="utf-8")
    parts = re.split(r"^rank (\d)\n", stacks, flags=re.MULTILINE)
    assert parts[1::2] == ["0", "1", "2"]
    for part in parts[2::2]:
        assert 'script.py", line 9 in stops' in part


def test_a_rank_whose_process_is_stopped_is_named(processes):
    """By the state of its process when the wait times out: mpiexec may let it go on afterwards."""
    program = "os.kill(os.getpid(), signal.SIGSTOP) if rank == 1 else comm.recv(1)"
    text = START.format(program=program).replace("import sys, time", "import os, signal, sys, time")
    (processes.folder / "script.py").write_text(text, encoding="utf-8")
    job = processes.minigrad("run", "-n", "2", "script.py", MINIGRAD_TIMEOUT="1.5")
    assert job.status == 1 and "\n  rank 1 does not wait: its process does not answer\n" in job.err, job.err
    assert "\n  rank 1 stopped first; " in job.err, job.err
