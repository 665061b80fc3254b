"""MPI processes that place models again and again hold no more memory, threads, files or communicators."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]  # the strategies to place lie under tests
WARM_UP, ROUNDS = 2, 3
WIDTH = 1000  # a message of 220 KB: it lies in memory that the ranks share, where they can

GROWS = """
import gc, os
from backends.comm.mpi import MPI, MPIComm
from tests.backends.placed_often import STRATEGIES, train

def held(comm):
    gc.collect()
    for _ in range(2):
        comm.split(0)  # all ranks come together: what they dropped is freed
    with open("/proc/self/maps") as maps:
        shared = maps.read().count("minigrad_shm")
    return {"shared": shared, "threads": len(os.listdir("/proc/self/task")),
            "files": len(os.listdir("/proc/self/fd")), "communicators": made()}

def made():
    # MPICH has 2048 numbers of communicators; of those that are left each can be made.
    left = []
    try:
        while len(left) < 3000:
            left.append(MPI.COMM_SELF.Dup())
    except MPI.Exception:
        pass
    for one in left:
        one.Free()
    return -len(left)

MPI.COMM_SELF.Set_errhandler(MPI.ERRORS_RETURN)
comm = MPIComm()

# What one rank still uses is not freed, however long ago the others dropped it.
groups = [comm.split(0)]
number = groups[0].number
if comm.rank:
    groups.clear()
for _ in range(3):
    comm.split(0)
assert number in comm.parts.all
groups.clear()
for _ in range(2):
    comm.split(0)
assert number not in comm.parts.all

names = [name for name in STRATEGIES if name != "elastic"]  # which needs ranks that outlive one another
for close in (True, False):
    counts = []
    for rounds in (WARM_UP, ROUNDS):
        for name in rounds * names:
            train(comm, name, close, WIDTH)
        counts.append(held(comm))
    before, after = counts
    how = "closed" if close else "dropped"
    assert after == before, f"rank {comm.rank}, {how}: {before} became {after}"
comm.close()
print("fine")
"""


@pytest.mark.thorough  # the quick lane has it on threads: tests/backends/test_closed.py
def test_placing_again_and_again_grows_nothing(processes):
    """Where each model's strategy is closed, and where it is dropped."""
    constants = f"{WARM_UP = }\n{ROUNDS = }\n{WIDTH = }\n"
    job = processes.ranks(2, constants + GROWS, PYTHONPATH=str(ROOT))
    assert job.status == 0, job.err
    assert job.out.count("fine") == 2, job.out  # not by lines: the ranks print at the same time
