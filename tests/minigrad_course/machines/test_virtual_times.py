"""Laws of lessons/minigrad_course/machines/virtual_cluster.py and backends/comm/collectives/costs.py:
on uniform links a collective takes exactly the time of its formula, and they cross where formulas do.
"""

import math

import numpy as np
import pytest
from minigrad_course.machines.virtual_cluster import VirtualCluster

from backends.comm import collectives
from backends.comm.collectives.link import Link

# Powers of two, so that every sum and quotient below is exact and times can be compared with ==.
ALPHA, BANDWIDTH, GAMMA = 2.0**-10, 2.0**20, 2.0**-22
BETA = 1 / BANDWIDTH
CHUNK = 64  # float64 elements in a p-th of the array


def seconds(p: int, program, *, gamma: float = GAMMA) -> float:
    cluster = VirtualCluster(p, Link(ALPHA, BANDWIDTH), reduction=gamma)
    cluster.run(program)
    return cluster.seconds


def whole(p: int, chunk: int = CHUNK) -> np.ndarray:
    return np.zeros(p * chunk)


def parts(p: int) -> list[np.ndarray]:
    return [np.zeros(CHUNK) for _ in range(p)]


def rounds(p: int) -> int:
    return math.ceil(math.log2(p))


# name: program of (comm, p), time of (p, L, n bytes)
ANY_SIZE = {
    "broadcast": (lambda c, p: collectives.broadcast(c, whole(p)), lambda p, L, n: L * (ALPHA + n * BETA)),
    "ring all-reduce": (
        lambda c, p: collectives.ring_allreduce(c, whole(p)),
        lambda p, L, n: 2 * (p - 1) * ALPHA + (p - 1) * (n / p) * (2 * BETA + GAMMA),
    ),
    "reduce-scatter": (
        lambda c, p: collectives.reduce_scatter(c, parts(p)),
        lambda p, L, n: (p - 1) * (ALPHA + n / p * (BETA + GAMMA)),
    ),
    "all-gather": (
        lambda c, p: collectives.allgather(c, np.zeros(CHUNK)),
        lambda p, L, n: (p - 1) * (ALPHA + n / p * BETA),
    ),
    "all-to-all": (
        lambda c, p: collectives.alltoall(c, parts(p)),
        lambda p, L, n: (p - 1) * (ALPHA + n / p * BETA),
    ),
    "barrier": (lambda c, p: collectives.barrier(c), lambda p, L, n: L * ALPHA),
}
POWERS_OF_TWO = {
    "tree": (
        lambda c, p: collectives.reduce_broadcast_allreduce(c, whole(p)),
        lambda p, L, n: 2 * L * (ALPHA + n * BETA) + L * n * GAMMA,
    ),
    "doubling": (
        lambda c, p: collectives.doubling_allreduce(c, whole(p)),
        lambda p, L, n: L * (ALPHA + n * (BETA + GAMMA)),
    ),
    "halving": (
        lambda c, p: collectives.rabenseifner_allreduce(c, whole(p)),
        lambda p, L, n: 2 * L * ALPHA + (p - 1) * (n / p) * (2 * BETA + GAMMA),
    ),
    "all-gather by doubling": (
        lambda c, p: collectives.doubling_allgather(c, np.zeros(CHUNK)),
        lambda p, L, n: L * ALPHA + (p - 1) * (n / p) * BETA,
    ),
    "scatter": (
        lambda c, p: collectives.tree_scatter(c, parts(p) if c.rank == 0 else None),
        lambda p, L, n: L * ALPHA + (p - 1) * (n / p) * BETA,
    ),
    "gather": (
        lambda c, p: collectives.tree_gather(c, np.zeros(CHUNK)),
        lambda p, L, n: L * ALPHA + (p - 1) * (n / p) * BETA,
    ),
    "scatter and all-gather": (
        lambda c, p: collectives.scatter_allgather_broadcast(c, whole(p)),
        lambda p, L, n: (L + p - 1) * ALPHA + 2 * (p - 1) * (n / p) * BETA,
    ),
}


@pytest.mark.parametrize("name", ANY_SIZE)
def test_takes_the_time_of_its_formula(name):
    program, time = ANY_SIZE[name]
    for p in range(1, 18):
        assert seconds(p, lambda comm, p=p: program(comm, p)) == time(p, rounds(p), whole(p).nbytes), p


@pytest.mark.parametrize("name", POWERS_OF_TWO)
def test_takes_the_time_of_its_formula_on_powers_of_two(name):
    program, time = POWERS_OF_TWO[name]
    for p in (1, 2, 4, 8, 16):
        assert seconds(p, lambda comm, p=p: program(comm, p)) == time(p, rounds(p), whole(p).nbytes), p


def test_up_and_down_a_tree_takes_twice_its_depth_on_any_number_of_ranks():
    """Without the reductions: on a lopsided tree some of them are done while messages are under way."""
    for p in range(1, 18):
        x = whole(p)
        time = seconds(p, lambda comm, x=x: collectives.reduce_broadcast_allreduce(comm, x), gamma=0)
        assert time == 2 * rounds(p) * (ALPHA + x.nbytes * BETA)


def first_size_where(p: int, faster, slower) -> int:
    """The smallest chunk (elements of a p-th of the array) from which ``faster`` is not the slower one."""

    def holds(chunk: int) -> bool:
        x = whole(p, chunk)
        return seconds(p, lambda c: faster(c, x), gamma=0) <= seconds(p, lambda c: slower(c, x), gamma=0)

    low, high = 0, 1
    while not holds(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


@pytest.mark.parametrize("p", [4, 8, 16])
def test_rabenseifner_beats_recursive_doubling_from_the_computed_size_on(p):
    L = rounds(p)
    crossover = L * ALPHA / (BETA * (L - 2 * (p - 1) / p))  # bytes
    size = first_size_where(p, collectives.rabenseifner_allreduce, collectives.doubling_allreduce)
    assert size == math.ceil(crossover / (8 * p))


def test_on_two_ranks_recursive_doubling_always_wins():
    for n in (2, 1000, 10**6):
        x = np.zeros(n)
        times = [
            seconds(2, lambda c, f=f, x=x: f(c, x), gamma=0)
            for f in (collectives.doubling_allreduce, collectives.rabenseifner_allreduce)
        ]
        assert times[0] < times[1]


@pytest.mark.parametrize("p", [5, 8, 13, 17])
def test_the_ring_beats_the_tree_from_the_computed_size_on(p):
    L = rounds(p)
    crossover = 2 * ALPHA * (p - 1 - L) / (2 * BETA * (L - (p - 1) / p))  # bytes
    size = first_size_where(p, collectives.ring_allreduce, collectives.reduce_broadcast_allreduce)
    assert size == math.ceil(crossover / (8 * p))
