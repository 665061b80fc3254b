"""MPI processes keep the same promises as thread ranks; few jobs, each with many checks."""

import pytest

MESSAGES = """
import numpy as np
from backends.comm import allreduce, broadcast, gather
from backends.comm.collectives import naive_allreduce
from backends.comm.mpi import MPIComm

comm = MPIComm()
rank, size = comm.rank, comm.size
right, left = (rank + 1) % size, (rank - 1) % size

# Arrays arrive as they were, in any memory order, dtype and shape, and may be changed once sent.
arrays = [
    np.array(3.5), np.zeros((0, 3)), np.arange(12.0).reshape(3, 4).T,
    np.arange(24, dtype="int64").reshape(2, 3, 4)[:, ::2, ::-1], np.array([True, False]),
    np.random.default_rng(0).normal(size=300_000).astype("float32"),
]
for x in arrays:
    sent = x.copy()
    comm.send(sent, right)
    sent[...] = 0
    got = comm.recv(left)
    assert got.dtype == x.dtype and got.shape == x.shape and (got == x).all(), (rank, x.shape)

# Tags do not mix, order within one is kept, receives may be started ahead.
for i in range(20):
    comm.send(np.array(i), right, tag=i % 2)
odd, even = comm.start_recv(left, tag=1), comm.start_recv(left, tag=0)
assert [int(odd()) for _ in range(10)] == list(range(1, 20, 2))
assert [int(even()) for _ in range(10)] == list(range(0, 20, 2))

# Collectives, with integers in floats: exact in any order.
for reduce in (allreduce, naive_allreduce):
    for n in (0, 1, 7, 100_000):
        x = np.random.default_rng(rank).integers(-50, 50, n).astype("float32")
        wanted = sum(np.random.default_rng(r).integers(-50, 50, n) for r in range(size))
        assert (reduce(comm, x) == wanted).all(), (rank, reduce, n)
assert (allreduce(comm, np.ones((3, 4)).T) == size).all()
assert broadcast(comm, np.array([rank]), root=size - 1)[0] == size - 1
assert [int(p[0]) for p in gather(comm, np.array([rank]))] == (list(range(size)) if rank == 0 else [])

# Groups.
half = comm.split(rank % 2, key=-rank)
members = [r for r in reversed(range(size)) if r % 2 == rank % 2]
assert (half.rank, half.size) == (members.index(rank), len(members))
assert float(allreduce(half, np.array([float(rank)]))[0]) == sum(members)
comm.close()
print("fine")
"""

PARALLEL = """
import numpy as np
from hypothesis import given, settings, strategies as st
from backends.comm.mpi import MPIComm
from backends.data_parallel import DataParallel
from backends.laws import trains_like_serial
from minigrad import nn, ops
from minigrad.data import Batch

def build(rng):
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1, rng=rng), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(16, 5, rng=rng), nn.Tanh(), nn.Linear(5, 3, rng=rng))

comm = MPIComm()

@settings(derandomize=True, database=None, deadline=None, max_examples=25)
@given(sizes=st.lists(st.integers(1, 13), min_size=1, max_size=3))
def test(sizes):
    rng = np.random.default_rng(0)
    batches = [Batch(rng.normal(size=(n, 1, 4, 4)), rng.integers(0, 3, n)) for n in sizes]
    trains_like_serial(DataParallel, comm, build, ops.cross_entropy, batches)

test()
comm.close()
print("fine")
"""


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_messages_and_collectives(processes, n):
    job = processes.ranks(n, MESSAGES)
    assert job.status == 0, job.err
    assert job.out.count("fine") == n


@pytest.mark.parametrize("n", [1, 2, 3])
def test_data_parallel_trains_like_serial(processes, n):
    job = processes.ranks(n, PARALLEL)
    assert job.status == 0, job.err
    assert job.out.count("fine") == n


def test_the_exception_of_one_rank_ends_all(processes):
    job = processes.ranks(
        3,
        "from backends.comm.mpi import MPIComm\n"
        "comm = MPIComm()\n"
        "if comm.rank == 1: raise ZeroDivisionError('of rank 1')\n"
        "comm.recv(1)\n",
    )
    assert job.status != 0 and "ZeroDivisionError: of rank 1" in job.err


def test_a_wait_has_a_bound_and_says_who_it_waits_for(processes):
    job = processes.ranks(
        2,
        "import numpy as np\n"
        "from backends.comm.mpi import MPIComm\n"
        "comm = MPIComm()\n"
        "comm.recv(1, tag=3) if comm.rank == 0 else comm.recv(0, tag=4)\n",
        MINIGRAD_TIMEOUT="0.5",
    )
    assert job.status != 0
    assert "waited 0.5 s for a message from rank" in job.err


def test_a_missing_rank_in_an_all_reduce_is_found(processes):
    job = processes.ranks(
        2,
        "import numpy as np, time\n"
        "from backends.comm.mpi import MPIComm\n"
        "comm = MPIComm()\n"
        "comm.allreduce(np.ones(3)) if comm.rank == 0 else time.sleep(30)\n",
        MINIGRAD_TIMEOUT="0.5",
    )
    assert job.status != 0
    assert "rank 0 waited 0.5 s for all ranks to enter an all-reduce" in job.err
