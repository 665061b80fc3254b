"""Laws of backends/comm/mpi.py, mpi_receive.py and allgather_json.py: MPI processes keep the same promises as
thread ranks; few jobs, each with many checks.
"""

import pytest

MESSAGES = """
import numpy as np
from backends.comm import allreduce, broadcast, gather
from backends.comm.collectives import naive_allreduce
from tests.backends.comm.conformance import PROMISES
from backends.comm.shared_memory_allreduce import SharedMemoryAllreduce

rank, size = comm.rank, comm.size
right, left = (rank + 1) % size, (rank - 1) % size
for promise in PROMISES:
    promise(comm)

# Receives with a declared shape are posted ahead, large and small, and mix with those without.
likes = [np.zeros(3), np.zeros(100_000), None, np.zeros((2, 50_000)), np.zeros(100_000), None]
receives = [comm.start_recv(left, tag=9, expect=like) for like in likes]
shapes = [(100_000,) if like is None else like.shape for like in likes]
sent = [np.full(shape, 10.0 * rank + i) for i, shape in enumerate(shapes)]
sends = [comm.start_send(x, right, tag=9) for x in sent]
for i in (3, 0, 5, 1, 2, 4):
    actual = receives[i]()
    assert actual.shape == sent[i].shape and (actual == 10 * left + i).all(), (rank, i)
    assert actual.base is None and actual.flags.writeable
for done in sends:
    done()
try:
    receives[0]()
except RuntimeError as error:
    assert "was finished before" in str(error)
else:
    raise AssertionError("a receive was finished twice")

# Memory order travels: nothing is scrambled, and what was contiguous in its own order arrives so.
images = np.random.default_rng(0).normal(size=(4, 30, 20, 8)).transpose(0, 3, 1, 2)
for x in (images, np.asfortranarray(images), images[::2, ::-1]):
    for like in (None, x):
        done = comm.start_send(x, right)
        actual = comm.recv(left, expect=like)
        assert (actual == x).all() and actual.strides == x.copy(order="K").strides, (rank, x.strides)
        done()

# All-reduces, with integers in floats: exact in any order.
window = SharedMemoryAllreduce(comm)
for reduce in (allreduce, naive_allreduce, window):
    for n in (0, 1, 7, 300_000):
        for dtype in ("float32", "float16", "int64"):
            x = np.random.default_rng(rank).integers(-50, 50, n).astype(dtype)
            before = x.copy()
            expected = sum(np.random.default_rng(r).integers(-50, 50, n) for r in range(size)).astype(dtype)
            actual = reduce(comm, x)
            assert (actual == expected).all() and actual.dtype == dtype and (x == before).all(), (rank, n)
    assert (reduce(comm, np.ones((3, 4)).T) == size).all()
    assert reduce(comm, np.array(2.0)).shape == ()
assert broadcast(comm, np.array([rank]), root=size - 1)[0] == size - 1
assert [int(p[0]) for p in gather(comm, np.array([rank]))] == (list(range(size)) if rank == 0 else [])

# Arrays in the window are summed where they lie, also in part; floats in rank order, the same bits on all.
for n in (1, 5, 300_000):
    parts = [np.random.default_rng(r).normal(size=n) for r in range(size)]
    serial = np.add.reduce(parts) if size < 3 else naive_allreduce(comm, parts[rank])
    a = window.array(n, "float64")
    a[:] = parts[rank]
    assert window(comm, a) is a and (a == serial).all()
    assert (window(comm, parts[rank]) == serial).all()
    assert window.owns(comm.array(300_000)) == (comm.local_size == size)  # where the ranks share it at all
    a[:] = rank
    window(comm, a[n // 2 :])
    assert (a[n // 2 :] == sum(range(size))).all() and (a[: n // 2] == rank).all()

# Both sides are named where ranks differ, and the ranks go on.
for reduce in (allreduce, window):
    try:
        reduce(comm, np.zeros(3 + (rank == size - 1), "float32"))
    except ValueError as error:
        assert f"rank 0 has float32(3,), rank {size - 1} has float32(4,)" in str(error), error
    else:
        assert size == 1
    assert reduce(comm, np.ones(3))[0] == size

# Groups of groups have windows of their own.
half = comm.split(rank % 2, key=-rank)
members = [r for r in reversed(range(size)) if r % 2 == rank % 2]
assert (half.rank, half.size) == (members.index(rank), len(members))
assert float(allreduce(half, np.array([float(rank)]))[0]) == sum(members)
assert float(SharedMemoryAllreduce(half)(half, np.array([float(rank)]))[0]) == sum(members)
"""

PARALLEL = """
from functools import partial
import numpy as np
from hypothesis import given, settings, strategies as st
from backends.comm.shared_memory_allreduce import SharedMemoryAllreduce
from backends.data_parallel import DataParallel
from backends.laws import trains_like_serial
from minigrad import nn, ops
from minigrad.data import Batch

def build(rng):
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1, rng=rng), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(16, 5, rng=rng), nn.Tanh(), nn.Linear(5, 3, rng=rng))

window = SharedMemoryAllreduce(comm)

@settings(derandomize=True, database=None, deadline=None, max_examples=25)
@given(sizes=st.lists(st.integers(1, 13), min_size=1, max_size=3), shared=st.booleans())
def test(sizes, shared):
    strategy = partial(DataParallel, allreduce=window) if shared else DataParallel
    rng = np.random.default_rng(0)
    batches = [Batch(rng.normal(size=(n, 1, 4, 4)), rng.integers(0, 3, n)) for n in sizes]
    trains_like_serial(strategy, comm, build, ops.cross_entropy, batches)

test()
"""


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_messages_and_collectives(pool, n):
    pool.run(n, MESSAGES)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_data_parallel_trains_like_serial(pool, n):
    pool.run(n, PARALLEL)


UNFINISHED = """
import numpy as np
from backends.comm.mpi import MPIComm
comm = MPIComm()
comm.start_send(np.ones(3), comm.rank, tag=5)
comm.start_recv(comm.rank, tag=6)
try:
    comm.close()
except RuntimeError as error:
    print(error)
"""


def test_what_was_started_and_never_finished_is_reported(processes):
    job = processes.ranks(1, UNFINISHED)
    assert job.status == 0, job.err
    assert job.out.strip() == (
        "rank 0 never finished the send to rank 0 (tag 5) that it started at script.py:5; "
        "rank 0 never finished the receive from rank 0 (tag 6) that it started at script.py:6; "
        "call what starting it returned"
    )


MALFORMED = """
import pickle
import numpy as np
from backends.comm import wire
from backends.comm.mpi import MPI, MPIComm

class Opens:
    def __reduce__(self):
        return open, ("opened", "w")

comm = MPIComm()
large = wire.Header(np.dtype("float64"), (1 << 50,), (0,), False).to_bytes()
MESSAGES = [  # the pieces, and what is declared
    ([pickle.dumps(Opens()).ljust(100)], None), ([pickle.dumps(Opens()).ljust(100)], np.zeros(3)),
    ([b""], None), ([bytes(wire.PIECE + 1)], None), ([large[:-1]], None), ([large + b"!"], None),
    ([large, bytes(10)], None), ([wire.pack(np.zeros(1000))[0], bytes(7999)], np.zeros(1000)),
]
for tag, (pieces, like) in enumerate(MESSAGES):
    if comm.rank == 1:
        for piece in pieces:
            comm.mpi.Send([piece, MPI.BYTE], 0, tag)
    else:
        try:
            comm.recv(1, tag, like)
        except ValueError as error:
            assert str(error).startswith(wire.NO_ARRAY), error
        else:
            raise AssertionError(f"message {tag} was taken")
comm.barrier_with("to end")
comm.close()
print("fine")
"""


def test_what_is_no_message_is_refused_without_running_or_taking_anything(processes):
    job = processes.ranks(2, MALFORMED)
    assert job.status == 0, job.err
    assert job.out.count("fine") == 2 and not (processes.folder / "opened").exists()
