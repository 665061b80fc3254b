"""Laws of lessons/minigrad_course/machines/one_sided.py: every addition to an array that MPI
processes share one-sidedly counts once, and bugs are seen.
"""

from pathlib import Path

import pytest

from .conftest import COMM

ROOT = Path(__file__).parents[2]  # the seeded bugs' own module lies under tests

LAW = '''
import numpy as np
from minigrad_course.machines import one_sided
from backends.comm.collectives import allgather


def every_addition_counts_once(comm, Window, dtype, shape, at, shared, pushes=15):
    """Whole numbers, so that any order of adding gives the same bits."""
    rng = np.random.default_rng([comm.rank, at])
    start = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    with Window(comm, start if comm.rank == at else None, at, shared=shared) as window:
        total, before = np.zeros(shape, dtype), window.get()
        for _ in range(pushes):
            x = rng.integers(0, 100, shape).astype(dtype)
            actual = window.accumulate(x)
            # What was there before is what was seen before and more: the own additions, and others'.
            assert actual.shape == shape and actual.dtype == dtype and (actual >= before).all()
            assert (actual >= start + total).all()
            before, total = actual + x, total + x
            assert (window.get() >= before).all()
        expected = start + np.sum(allgather(comm, total), axis=0)  # when it is there, all have added
        assert (window.get() == expected).all(), (window.get(), expected)
    window.close()
'''

FINE = """
for shared in (True, False):
    for at in range(comm.size):
        for dtype, shape in (("float64", (3, 5)), ("float32", (1000,)), ("int64", ()), ("int32", (0,))):
            every_addition_counts_once(comm, one_sided.Window, dtype, shape, at, shared)

# Each number of an addition says who added it and which one it was: numbers drawn one by one, like tickets.
with one_sided.Window(comm, np.zeros(1, np.int64) if comm.rank == 0 else None) as tickets:
    mine = np.concatenate([tickets.accumulate(np.ones(1, np.int64)) for _ in range(20)])
    drawn = np.concatenate(allgather(comm, mine))
    assert sorted(drawn) == list(range(20 * comm.size)) and (np.diff(mine) > 0).all()

# A Fortran-order array arrives in its logical order.
x = np.asfortranarray(np.arange(6.0).reshape(2, 3))
with one_sided.Window(comm, x if comm.rank == 0 else None) as window:
    comm.barrier_with("to read")
    assert (window.get() == x).all()
    comm.barrier_with("to add")
    window.accumulate(x)
    allgather(comm, np.zeros(1))
    assert (window.get() == (comm.size + 1) * x).all()
"""

BUGS = {
    "adds twice": ('self.access(x, MPI.SUM, "add to")', '[self.access(x, MPI.SUM, "") for _ in "12"][1]'),
    "replaces": ("self.access(x, MPI.SUM", "self.access(x, MPI.REPLACE"),
    "does not add": ("self.access(x, MPI.SUM", "self.access(x, MPI.NO_OP"),
    "a read adds": ("self.access(self.zeros, MPI.NO_OP", "self.access(np.ones_like(self.zeros), MPI.SUM"),
    "begins with nothing": ("[...] = own", "[...] = 0"),
    "forgets the order of the axes": ('x = np.asarray(to_host(x), order="C")', 'x = np.ravel(x, "F")'),
}

# Between read and write it waits for the others, so that an addition is lost in every run, not by chance.
READS_AND_WRITES_BACK = (
    'return self.access(x, MPI.SUM, "add to")',
    'before = self.get(); self.comm.barrier_with("to write back"); '
    'self.access(before + x, MPI.REPLACE, "add to"); return before',
)

CATCH = """
from tests.bugs.mutant import mutant

for name, change in {bugs!r}.items():
    broken = mutant("minigrad_course.machines.one_sided", change).Window
    try:
        every_addition_counts_once(comm, broken, "float64", (3, 5), 0, shared=True, pushes={pushes})
    except (AssertionError, ValueError) as error:
        if comm.size > 1:
            raise  # and ends the others
        print("caught:", name)
"""

MISTAKES = """
import numpy as np
from minigrad_course.machines.one_sided import Window

def refused(work):
    try:
        work()
    except ValueError as error:
        print(error)

refused(lambda: Window(comm, None))
refused(lambda: Window(comm, np.zeros(3, bool) if comm.rank == 0 else None))
refused(lambda: Window(comm, np.zeros(3), at=2))
with Window(comm, np.zeros(3) if comm.rank == 0 else None) as window:
    refused(lambda: window.accumulate(np.zeros(4)))
    refused(lambda: window.accumulate(np.zeros(3, np.float32)))
"""

ABSENT = """
import numpy as np, time
from backends.comm.mpi import MPIComm
from minigrad_course.machines.one_sided import Window

comm = MPIComm()
window = Window(comm, np.zeros(3) if comm.rank == 0 else None, shared=False)
if comm.rank == 0:
    time.sleep(20)  # outside MPI
window.accumulate(np.ones(3))
"""


@pytest.mark.parametrize("n", [1, 3])
def test_every_addition_counts_once(pool, n):
    pool.run(n, LAW + FINE)


def test_the_law_catches(pool, processes):
    out = pool.run(1, LAW + CATCH.format(bugs=BUGS, pushes=3))
    assert [bug for bug in BUGS if f"caught: {bug}\n" not in out] == []
    lost = CATCH.format(bugs={"lost": READS_AND_WRITES_BACK}, pushes=3)
    job = processes.ranks(3, COMM + LAW + lost, PYTHONPATH=str(ROOT))
    assert job.status != 0 and "AssertionError" in job.err


def test_mistakes_name_both_sides(pool):
    out = pool.run(2, MISTAKES)
    for text, times in (
        ("rank 0 exposes an array, but passed none; pass one there, None elsewhere", 2),
        ("MPI cannot add bool; expose integers, float32 or float64", 2),
        ("rank 2 does not exist; this communicator has ranks 0 to 1", 2),
        ("rank 1 adds float64(4,) to float64(3,), which rank 0 exposes; pass an array like it", 1),
        ("rank 0 adds float32(3,) to float64(3,), which rank 0 exposes; pass an array like it", 1),
    ):
        assert out.count(text) == times, (text, out)


def test_a_wait_for_a_rank_outside_mpi_is_bounded(processes):
    job = processes.ranks(2, ABSENT, seconds=60, MINIGRAD_TIMEOUT="1")
    assert job.status != 0
    assert "to add to the window of rank 0" in job.err and "rank 1 waited" in job.err
