"""Over real MPI, buckets train like one machine, whoever sees to the sums meanwhile; and waits have names."""

import re

import pytest

from .conftest import COMM

LAW = """
from functools import partial
import numpy as np
from hypothesis import given, settings, strategies as st
from backends.comm.collectives import allreduce, ring_allreduce
from backends.comm.trace import Traced, gather_trace
from backends.data_parallel.bucketed import PROGRESS, Bucketed
from backends.laws import trains_like_serial
from minigrad import nn, ops
from minigrad.data import Batch

class Branching(nn.Module):
    "Each rank announces in an order of its own; one layer is tied, one is reached by some samples only."

    def __init__(self, rng):
        self.first, self.last = nn.Linear(6, 4, rng=rng), nn.Linear(4, 3, rng=rng)
        self.left, self.right = nn.Linear(4, 4, rng=rng), nn.Linear(4, 4, rng=rng)
        self.sometimes, self.never = nn.Linear(4, 4, rng=rng), nn.Linear(4, 4, rng=rng)

    def forward(self, x):
        h = ops.tanh(self.first(x))
        order = (self.left, self.right) if x.data.sum() > 0 else (self.right, self.left)
        total = sum(ops.tanh(layer(self.left(h))) for layer in order)
        chosen = (x.data[:, :1] > 1).astype(x.dtype)
        if chosen.any():
            total = total + ops.tanh(self.sometimes(h)) * chosen
        return self.last(total)

traced = Traced(comm)

@settings(derandomize=True, database=None, deadline=None, max_examples=6)
@given(
    sizes=st.lists(st.integers(1, 13), min_size=1, max_size=3),
    nbytes=st.sampled_from([1, 100, 200, 1 << 30]),
    ring=st.booleans(),
    dtype=st.sampled_from(["float64", "float32"]),
)
def test(progress, sizes, nbytes, ring, dtype):
    strategy = partial(
        Bucketed, allreduce=ring_allreduce if ring else None, progress=progress, micro_batches=2,
        bucket_bytes=nbytes, first_bucket_bytes=nbytes)
    rng = np.random.default_rng(0)
    batches = [Batch(rng.normal(size=(n, 6)), rng.integers(0, 3, n)) for n in sizes]
    trains_like_serial(strategy, traced, Branching, ops.cross_entropy, batches, dtype=dtype)

for progress in PROGRESS:
    test(progress)
trace = gather_trace(comm, traced)
if comm.rank == 0:
    for a, sender in enumerate(trace.ledgers):
        for b, receiver in enumerate(trace.ledgers):
            assert sender.sent(to=b) == receiver.received(source=a), (a, b)
    assert any(span.what == "start_allreduce" for span in trace.spans)
backend = Bucketed(comm)
backend.place(nn.Linear(2, 2, rng=np.random.default_rng(0)))
assert not backend.overlaps  # all ranks are on this machine
"""


@pytest.mark.parametrize("n", [3, *(pytest.param(n, marks=pytest.mark.thorough) for n in (2, 4))])
def test_buckets_train_like_serial(pool, n):
    pool.run(n, LAW)


def test_with_mpis_own_progress_thread_too(processes):
    script = COMM + LAW.replace("max_examples=6", "max_examples=3") + "comm.close()\n"
    job = processes.ranks(2, script, MPIR_CVAR_ASYNC_PROGRESS="1")
    assert job.status == 0, job.err


START = """import sys, time
import numpy as np
from backends.comm.collectives import ring_allreduce
from backends.comm.mpi import MPIComm
comm = MPIComm()
rank, other, x = comm.rank, 1 - comm.rank, np.ones(3)
background = comm.background()
"""
WAITS = {  # the program, and what is said on stderr
    "a rank never starts its job": (
        "background.start(lambda comm: comm.allreduce(x), 'sum', 24)() if rank == 0 else time.sleep(60)",
        ["rank 0's background waited .* for all ranks to all-reduce float64(3,) at script.py:8"],
    ),
    "a job receives what nobody sends": (
        "background.start(lambda comm: comm.recv(other, tag=3))() if rank else comm.recv(1, tag=4)",
        [
            "rank 1's background waited .* to receive from rank 0 (tag 3) at script.py:8",
            "rank 0 waited .* to receive from rank 1 (tag 4) at script.py:8",
        ],
    ),
    "a rank computes, and finds out when it finishes": (
        """time.sleep(60 if rank == 0 else 0)
finish = background.start(lambda comm: ring_allreduce(comm, x))
time.sleep(2.5)
finish()""",
        ["rank 1's background waited .* to receive from rank 0 "],
    ),
}


@pytest.mark.parametrize("kind", WAITS)
def test_a_wait_that_never_ends_says_whose_and_for_what(processes, kind):
    program, said = WAITS[kind]
    job = processes.ranks(2, START + program, seconds=30, MINIGRAD_TIMEOUT="0.5")
    assert job.status != 0
    for text in said:
        pattern = ".*".join(re.escape(part) for part in text.split(".*"))
        assert re.search(f"^minigrad: {pattern}", job.err, re.MULTILINE), (text, job.err)
    assert "TimeoutError: rank" in job.err


ENDINGS = """
try:
    background.start(lambda comm: 1 // 0, "division", 8)
    comm.close()
except RuntimeError as error:
    print(error)
finish = comm.background().start(lambda comm: comm.allreduce(np.ones(3 + rank)), "allreduce")
try:
    finish()
except ValueError as error:
    print(error)
sys.stdout.flush()
sys.exit(0)  # nothing waits for threads that are idle
"""


def test_what_was_started_and_never_finished_is_reported_and_errors_are_raised(processes):
    job = processes.ranks(2, START + ENDINGS)
    assert job.status == 0, job.err
    for rank in range(2):
        assert (
            f"rank {rank} never finished the division of 8 bytes in the background that it started at "
            "script.py:10; call what starting it returned"
        ) in job.out
    assert job.out.count("rank 0 has float64(3,), rank 1 has float64(4,) in one all-reduce") == 2


def test_an_mpi_that_one_thread_may_call_is_refused(processes):
    job = processes.ranks(1, START, MPI4PY_RC_THREAD_LEVEL="funneled")
    assert job.status != 0
    assert "MPI_THREAD_MULTIPLE); unset MPI4PY_RC_THREAD_LEVEL" in job.err
