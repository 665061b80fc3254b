"""Laws of lessons/minigrad_course/machines/virtual_cluster.py: the virtual cluster keeps the model's time
exactly, and the same time every time.
"""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from minigrad_course.machines.virtual_cluster import VirtualCluster

from backends.comm import Wrapper
from backends.comm.collectives.link import Link
from tests.backends.comm.conformance import shift
from tests.backends.lanes import thorough

A, B = 2.0**-10, 2.0**10  # a latency and a bandwidth whose sums and quotients are exact in binary
X = np.zeros(128)  # 1 KB


def cost(nbytes: int) -> float:
    return A + nbytes / B


def cluster(n: int, **settings) -> VirtualCluster:
    return VirtualCluster(n, Link(A, B), **settings)


@given(p=st.integers(2, 9), steps=st.integers(1, 9), n=st.integers(0, 64))
def test_shifts_round_a_ring_overlap_entirely(p, steps, n):
    world = cluster(p)
    x = np.zeros(n)

    def program(comm):
        for _ in range(steps):
            shift(comm, x)
        return comm.time()

    assert world.run(program) == [steps * cost(8 * n)] * p
    assert world.seconds == steps * cost(8 * n) and len(world.transfers) == p * steps


@given(p=st.integers(2, 9))
def test_one_server_hears_its_clients_one_after_the_other(p):
    def program(comm):
        if comm.rank:
            comm.send(X, 0)
        else:
            assert sorted(comm.recv_any()[0] for _ in range(p - 1)) == list(range(1, p))
        return comm.time()

    world = cluster(p)
    assert world.run(program) == [(p - 1) * cost(X.nbytes)] + [0.0] * (p - 1)


def test_two_messages_of_one_rank_leave_one_after_the_other():
    def program(comm):
        if comm.rank == 0:
            comm.send(X, 1)
            comm.send(X, 2)
        else:
            comm.recv(0)
        return comm.time()

    assert cluster(3).run(program) == [0.0, cost(X.nbytes), 2 * cost(X.nbytes)]


def test_computing_hides_a_message_under_way():
    def program(comm):
        if comm.rank == 0:
            comm.send(X, 1)
            return comm.time()
        receive = comm.start_recv(0)
        comm.compute(3 * cost(X.nbytes))
        receive()
        return comm.time()

    assert cluster(2).run(program) == [0.0, 3 * cost(X.nbytes)]


def test_a_straggler_computes_more_slowly_and_a_slow_link_takes_longer():
    world = cluster(3, slowness={1: 4.0}, links={(0, 2): Link(A, B / 8)})

    def program(comm):
        comm.compute(1.0)
        now = comm.time()
        if comm.rank == 0:
            comm.send(X, 2)
        elif comm.rank == 2:
            comm.recv(0)
        return now, comm.time()

    assert world.run(program) == [(1.0, 1.0), (4.0, 4.0), (1.0, 1.0 + A + 8 * X.nbytes / B)]


def test_reductions_cost_what_is_said():
    world = cluster(1, reduction=2.0**-20)
    world.run(lambda comm: comm.charge_reduction(512))
    assert world.seconds == 512 * 2.0**-20


def noisy(comm):
    for i in range(5):
        comm.compute(0.1 * (comm.rank + 1))
        shift(comm, np.zeros(10 * i))
    return comm.time()


def test_the_same_seed_gives_the_same_timeline_bit_for_bit_and_another_another():
    def timeline(seed):
        world = cluster(5, jitter=0.5, seed=seed)
        return world.run(noisy), world.transfers

    assert timeline(1) == timeline(1)
    assert timeline(1) != timeline(2)


@given(seed=st.integers(0, 50), jitter=st.floats(0, 2))
def test_jitter_only_draws_out(seed, jitter):
    assert cluster(4, jitter=jitter, seed=seed).run(noisy) >= cluster(4).run(noisy)


@given(seed=st.integers(0, 50), nodes=st.sampled_from([(), (0, 0, 0, 1, 1, 1), (4, 2, 4, 2, 2, 7)]))
def test_each_port_carries_one_message_at_a_time(seed, nodes):
    world = cluster(6, jitter=1.0, seed=seed, nodes=nodes)

    def program(comm):
        draw = np.random.default_rng([seed, comm.rank])
        for to in draw.permutation(comm.size):
            comm.compute(float(draw.random()) * A)
            comm.send(np.zeros(int(draw.integers(0, 50))), int(to))
        for _ in range(comm.size):
            comm.recv_any()

    world.run(program)
    nodes = nodes or tuple(range(6))
    for end in ("source", "destination"):
        for port in (*product([True], range(6)), *product([False], nodes)):
            spans = sorted(
                (t.start, t.stop)
                for t in world.transfers
                if (inside := nodes[t.source] == nodes[t.destination]) == port[0]
                and (getattr(t, end) if inside else nodes[getattr(t, end)]) == port[1]
                and t.source != t.destination
            )
            assert all(stop <= start for (_, stop), (start, _) in zip(spans, spans[1:], strict=False))


def test_the_ranks_of_a_machine_share_its_card_and_send_to_each_other_beside_it():
    world = cluster(4, nodes=[0, 0, 1, 1])

    def program(comm):
        assert comm.nodes == [0, 0, 1, 1] and comm.split(comm.rank % 2).nodes == [0, 1]
        for to in ((comm.rank + 2) % 4, comm.rank ^ 1):
            comm.send(X, to)
        comm.recv(comm.rank ^ 1)
        inside = comm.time()
        comm.recv((comm.rank + 2) % 4)
        return inside, comm.time()

    one = cost(X.nbytes)
    assert world.run(program) == [(one, one), (one, 2 * one), (one, one), (one, 2 * one)]


@pytest.mark.parametrize("rounds", [8, thorough(10)])
def test_many_ranks(rounds):
    """A binomial broadcast: ten rounds reach 1,024."""

    def program(comm):
        if comm.rank:
            comm.recv(comm.rank & (comm.rank - 1))  # without its lowest bit: the parent
        lowest = (comm.rank & -comm.rank) or comm.size
        while lowest > 1:
            lowest //= 2
            comm.send(X, comm.rank + lowest)
        return comm.time()

    world = cluster(2**rounds)
    world.run(program)
    assert world.seconds == rounds * cost(X.nbytes) and len(world.transfers) == 2**rounds - 1


def test_a_wrapped_rank_computes_and_adds_in_the_clusters_time():
    def program(comm):
        wrapped = Wrapper(comm)
        wrapped.compute(2.0 if comm.rank else 1.0)
        return wrapped.time(), wrapped.reduction_seconds(X.nbytes)

    assert cluster(2, reduction=1 / B).run(program) == [(1.0, X.nbytes / B), (2.0, X.nbytes / B)]


def test_computing_takes_no_negative_time():
    with pytest.raises(ValueError, match="computing takes at least 0 seconds, got -1"):
        cluster(1).run(lambda comm: comm.compute(-1))
