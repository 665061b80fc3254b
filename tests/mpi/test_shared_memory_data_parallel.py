"""MPI processes share gradients and weights: the same training as serial, and the same bits on every rank."""

import os

import pytest
from minigrad_course.experiments.hosts import Hosts, problem

from backends.launch.launch import environment

TRAIN = """
from functools import partial
from unittest.mock import patch
import numpy as np
from hypothesis import given, settings, strategies as st
from backends.comm import shared_memory as shared
from backends.comm.collectives import allgather, naive_allreduce
from backends.data_parallel import DataParallel, shared_memory
from backends.data_parallel.shared_memory import SharedMemoryDataParallel
from backends.laws import trains_like_serial
from minigrad import nn, ops, optim
from minigrad.data import Batch

def build(rng):
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1, rng=rng), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        tied := nn.Linear(16, 16, rng=rng), nn.Tanh(), tied, nn.Tanh(), nn.Linear(16, 3, rng=rng))

def batches_of(sizes):
    rng = np.random.default_rng(0)
    return [Batch(rng.normal(size=(n, 1, 4, 4)), rng.integers(0, 3, n)) for n in sizes]

OPTIMIZERS = {
    "nesterov": lambda p: optim.SGD(p, 0.1, momentum=0.8, nesterov=True, weight_decay=0.01),
    "adam": lambda p: optim.Adam(p, 0.01),
    "clipped": lambda p: optim.SGD(p, 0.1, momentum=0.9).clipped(0.05),
}

@settings(derandomize=True, database=None, deadline=None, max_examples=15)
@given(
    sizes=st.lists(st.integers(1, 13), min_size=1, max_size=3), k=st.integers(1, 2),
    strategy=st.sampled_from([SharedMemoryDataParallel, DataParallel]),
    name=st.sampled_from(sorted(OPTIMIZERS)),
    every=st.integers(1, 2),
)
def test(sizes, k, strategy, name, every):
    made = partial(strategy, micro_batches=k)
    trains_like_serial(made, comm, build, ops.cross_entropy, batches_of(sizes), optimizer=OPTIMIZERS[name],
                       zero_every=every, update_every=every)

def trained(backend, dtype):
    model = backend.place(build(np.random.default_rng(comm.rank)).to(dtype=dtype))
    method = optim.SGD(model.parameters(), 0.1, momentum=0.9)
    for batch in batches_of([13, 2, 7, 11]):
        method.zero_grad()
        backend.step(model, batch, ops.cross_entropy)
        backend.update(model, method)
    return np.concatenate([w.reshape(-1) for w in backend.state.full_parameters(model).values()])

with patch.object(shared_memory, "BLOCK", 50):
    test()
    for dtype in ("float32", "float64"):
        weights = trained(SharedMemoryDataParallel(comm), dtype)
        assert (weights == trained(DataParallel(comm, naive_allreduce), dtype)).all()
        assert all((other == weights).all() for other in allgather(comm, weights))

# What the communicator made is summed where it lies, what it did not is left alone.
x, y = comm.array((3, 9000), "float64"), np.full((3, 9000), comm.rank)
for i in range(3):
    x[...] = comm.rank + i
    assert comm.allreduce(x) is x and (x == sum(range(comm.size)) + i * comm.size).all()
    assert (comm.allreduce(y) == sum(range(comm.size))).all() and (y == comm.rank).all()
assert not comm.shared_sum.owns(comm.array(10)), "a small array is an ordinary one"

# Where there is too little shared memory, it is an ordinary array too.
with patch.object(shared, "free_shared_memory", lambda: 1 << 20):
    large = comm.array(1 << 20)
large[...] = 1
assert (comm.allreduce(large) == comm.size).all() and (large == 1).all()
"""

APART = """
import numpy as np
from backends.comm.mpi import MPIComm
from backends.data_parallel import DataParallel
from backends.data_parallel.shared_memory import SharedMemoryDataParallel
from backends.laws import trains_like_serial
from minigrad import nn, ops
from minigrad.data import Batch

comm = MPIComm()
build = lambda rng: nn.Linear(3, 2, rng=rng)
batch = Batch(np.ones((5, 3)), np.arange(5) % 2)
trains_like_serial(DataParallel, comm, build, ops.cross_entropy, [batch] * 2)
try:
    SharedMemoryDataParallel(comm).place(build(np.random.default_rng(0)))
except ValueError as error:
    print(error)
comm.close()
"""


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_trains_like_serial(pool, n):
    pool.run(n, TRAIN)


def test_ranks_on_two_hosts_are_refused(processes, tmp_path):
    if reason := problem():
        if os.environ.get("MINIGRAD_REQUIRE_HOSTS"):
            pytest.fail(reason)
        pytest.skip(reason)
    (processes.folder / "script.py").write_text(APART, encoding="utf-8")
    with Hosts(tmp_path, rate=10**9) as hosts:
        job = processes.run(hosts.mpiexec(2, "script.py"), environment(2), seconds=60)
    assert job.status == 0, job.err
    assert job.out.count("the 2 ranks do not share a machine, as this strategy must; take strategy") == 2
