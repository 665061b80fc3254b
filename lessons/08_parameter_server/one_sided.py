"""Part 6 of lesson 08: the parameters are in a window of rank 0, and the others train them there.

Only called under MPI: every rank calls ``part``, and rank 0 gets the lines to print.
"""

import time

import numpy as np

from backends.comm.collectives import gather
from backends.data_parallel.flat import FlatLayout
from minigrad import Tensor, nn, ops
from minigrad.data import minibatches, shares
from minigrad.serial import Serial

PUSHES, BUSY = 40, 0.5


def part(comm, digits):
    """Lines to print; all ranks call it, and MPI ends with it."""
    from minigrad_course.machines.one_sided import Window

    from backends.comm.mpi import MPI  # here, since both need mpi4py

    lines = [*progress(comm, Window), *train(comm, Window, digits)]
    comm.close()
    MPI.Finalize()
    return lines


def progress(comm, Window):
    """How long additions take while rank 0 computes, and while it waits in MPI; lines of rank 0."""
    lines = []
    for shared in (True, False):
        with Window(comm, np.zeros(1000) if comm.rank == 0 else None, shared=shared) as window:
            for busy in (True, False):
                comm.barrier_with("for all ranks to begin")
                seconds = np.zeros(0)
                if comm.rank > 0:
                    time.sleep(0.05)  # rank 0 is at work
                    seconds = np.array(
                        [timed(window.accumulate, np.full(1000, 1.0 * comm.rank)) for _ in range(PUSHES)]
                    )
                elif busy:
                    compute(BUSY)
                times = gather(comm, seconds)  # when it is there, all have added
                if comm.rank == 0:
                    each = 1e3 * np.concatenate(times)
                    memory = "shared memory" if shared else "private memory"
                    lines.append(
                        f"   rank 0 in {memory:17} {'computes' if busy else 'waits in MPI':12}: "
                        f"an addition takes {np.median(each):.2f} ms (median), {each.max():6.1f} ms at most"
                    )
            if comm.rank == 0:
                assert (window.get() == 2 * PUSHES * sum(range(comm.size))).all()  # none lost, none twice
    return [*lines, f"   {4 * PUSHES * (comm.size - 1)} additions, their sum exact"]


def timed(access, x):
    start = time.perf_counter()
    access(x)
    return time.perf_counter() - start


def compute(seconds):
    """Compute for so long, outside MPI."""
    a, end = np.eye(200), time.perf_counter() + seconds
    while time.perf_counter() < end:
        a = a @ a


def train(comm, Window, digits, epochs=2, rate=0.1):
    """A layer for the digits; read, compute, add. The last number counts the updates, as a version would."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 10, rng=np.random.default_rng(0)))
    layout = FlatLayout(model.parameters())
    start = np.append(layout.weights(), np.float32(0))
    ages, moved = [], np.zeros_like(start)

    with Window(comm, start if comm.rank == 0 else None) as window:
        if comm.rank > 0:
            mine = digits.train[shares(len(digits.train), comm.size - 1)[comm.rank - 1]]
            for epoch in range(epochs):
                for batch in minibatches(mine, 32, seed=0, epoch=epoch):
                    layout.load(now := window.get())
                    Serial().step(model, batch, ops.cross_entropy)
                    step = np.append(-rate * layout.pack([p.grad for p in layout.parameters]), np.float32(1))
                    ages.append(window.accumulate(step)[-1] - now[-1])
                    moved += step
                    for parameter in layout.parameters:
                        parameter.grad = None
        all_moved, all_ages = gather(comm, moved), gather(comm, np.array(ages))
        if comm.rank > 0:
            return []
        end = window.get()
    layout.load(end)
    loss = ops.cross_entropy(model(Tensor(digits.test.x)), digits.test.y).item()
    ages = np.concatenate(all_ages)
    assert end[-1] == len(ages) and ages.min() >= 0 and loss < 0.6
    np.testing.assert_allclose(end, start + np.sum(all_moved, axis=0), atol=1e-4)
    workers = "1 worker trains" if comm.size == 2 else f"{comm.size - 1} workers train"
    return [
        f"   {workers} a layer there: {end[-1]:.0f} updates, loss {loss:.3f}; "
        f"staleness {ages.mean():.2f} on average, at most {ages.max():.0f}"
    ]
