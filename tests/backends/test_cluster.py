"""Laws of backends/comm/collectives/link.py, backends/comm/collectives/automatic.py, costs.py,
backends/data_parallel/allreduce_choice.py and backends/launch/ping_pong.py: choices by measured links, and
threads by the ranks of each machine, on drawn clusters.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from minigrad_course.machines.virtual_cluster import VirtualCluster

from backends.comm import run_ranks
from backends.comm.collectives import ALLREDUCES, AutomaticAllreduce, find_allreduce
from backends.comm.collectives.automatic import ALGORITHMS
from backends.comm.collectives.costs import ROUNDS, Machine
from backends.comm.collectives.link import Link, read_link
from backends.data_parallel import Bucketed, LocalSGD
from backends.launch.ping_pong import Links, Pair, measure_links, used_interface
from backends.laws import trains_like_serial
from minigrad.ops import cross_entropy
from tests.backends import cluster_laws as laws
from tests.nets import batches_of, mlp

few = settings(max_examples=settings().max_examples // 3)  # each runs a virtual cluster
latencies = st.floats(-6, -3).map(lambda x: 10**x)
bandwidths = st.floats(6, 10).map(lambda x: 10**x)
links = st.builds(Link, latencies, bandwidths)
sizes = st.floats(0, 4.5).map(lambda x: 8 * int(10**x))


@st.composite
def machines(draw):
    """Ranks on one machine, each on its own, or as many on each; the links inside are the faster ones."""
    count, each = draw(
        st.sampled_from([(1, 1), (1, 4), (1, 6), (5, 1), (8, 1), (2, 2), (2, 4), (3, 2), (4, 3)])
    )
    between = draw(links)
    faster, wider = 10 ** draw(st.floats(0, 2)), 10 ** draw(st.floats(0, 2))
    inside = Link(between.latency / faster, between.bandwidth * wider)
    return Machine([node for node in range(count) for _ in range(each)], inside, between)


@given(st.integers(1, 9), st.integers(1, 9))
def test_only_the_ranks_of_a_slurm_job_have_more_threads_than_one(ranks, here):
    laws.only_the_ranks_of_a_slurm_job_have_more_threads_than_one(ranks, here)


@given(
    launcher=st.sampled_from(["MPICH", "Open MPI", "Slurm"]),
    ranks=st.lists(st.integers(1, 9), min_size=1, max_size=6),
    here=st.integers(1, 64),
    data=st.data(),
)
def test_ranks_share_the_cores_of_their_own_host(launcher, ranks, here, data):
    host = data.draw(st.integers(0, len(ranks) - 1))
    laws.ranks_share_the_cores_of_their_own_host(launcher, ranks, host, here)


@given(p=st.sampled_from([1, 2, 4, 8, 16]), nbytes=sizes, link=links)
def test_costs_are_the_closed_forms(p, nbytes, link):
    laws.costs_are_the_closed_forms(p, nbytes, link)
    laws.the_choice_is_the_least_of_the_formulas(p, nbytes, link)


@few
@given(nbytes=sizes, machine=machines())
def test_no_algorithm_is_much_faster_than_the_chosen_one(nbytes, machine):
    laws.no_algorithm_is_much_faster_than_the_chosen_one(nbytes, machine)


@few
@given(machine=machines(), length=st.integers(1, 300), jitter=st.floats(0, 2), seed=st.integers(0, 9))
def test_ranks_measure_choose_and_sum_the_same(machine, length, jitter, seed):
    cluster = laws.cluster_of(machine)
    cluster.jitter, cluster.seed = jitter, seed
    laws.ranks_measure_choose_and_sum_the_same(cluster, length)


@few
@given(link=st.builds(Link, latencies, st.floats(6, 9).map(lambda x: 10**x)))
def test_a_link_is_measured_as_it_is(link):
    laws.a_link_is_measured_as_it_is(link)


@few
@given(one=links, other=links)
def test_a_resumed_run_chooses_the_same(one, other):
    laws.a_resumed_run_chooses_the_same(one, other)


@given(nbytes=st.integers(64, 10**8), link=links, p=st.integers(2, 9))
def test_buckets_are_of_the_best_size(nbytes, link, p):
    laws.buckets_are_of_the_best_size(nbytes, link, p)


@st.composite
def measured_links(draw):
    nodes = draw(st.lists(st.integers(0, 2), min_size=2, max_size=6))
    pairs = [
        Pair(a, b, draw(latencies), draw(bandwidths), ("eth0", "eth0"))
        for b in range(len(nodes))
        for a in range(b)
    ]
    return Links([f"host{node}" for node in nodes], nodes, pairs)


@given(links=measured_links())
def test_the_worst_links_stand_first(links):
    laws.the_worst_links_stand_first(links)
    assert Links.read(links.as_json()) == links


def test_a_slow_pair_is_pointed_out():
    cluster = VirtualCluster(4, Link(1e-5, 1e9), links={(1, 2): Link(1e-3, 1e7), (2, 1): Link(1e-3, 1e7)})
    results = cluster.run(measure_links)
    assert all(one == results[0] for one in results)
    assert [(p.one, p.other) for p, slow in laws.worst_first(results[0]) if slow] == [(1, 2)]


def test_an_interface_is_the_one_that_sent():
    before = {"lo": 10**9, "eth0": 5, "eth1": 7}
    assert used_interface(before, before | {"eth1": 7 + (1 << 22), "lo": 10**9 + 300}) == "eth1"
    assert used_interface(before, before | {"lo": 10**9 + 300}) is None and used_interface({}, {}) is None


@pytest.mark.parametrize("strategy", [Bucketed, LocalSGD])
def test_ranks_take_the_all_reduce_of_the_links_that_are_given(strategy):
    """With auto:LATENCY,BANDWIDTH nothing is measured, so a test knows the choice."""

    def work(comm):
        automatic = find_allreduce("auto:1,1e9")
        assert isinstance(automatic, AutomaticAllreduce)
        backend = strategy(comm, automatic)
        backend.place(laws.mlp(np.random.default_rng(0)))
        automatic(comm, np.ones(4))
        declaration = backend.declaration
        links, rows = declaration.chosen(backend)["links"], declaration.rows(backend)
        return links["inside"], automatic.taken, rows["allreduce"]

    for results in run_ranks(4, work):
        assert results[0] == [1.0, 1e9] and results[1] == {32: "doubling"} and "doubling" in results[2]


def test_the_automatic_all_reduce_trains_like_serial():
    def strategy(comm):
        return Bucketed(comm, AutomaticAllreduce(), bucket_bytes="auto")

    for ranks in (1, 3):
        run_ranks(
            ranks, lambda comm: trains_like_serial(strategy, comm, mlp, cross_entropy, batches_of([5, 2]))
        )


def test_every_cost_has_its_algorithm():
    assert ALGORITHMS.keys() == ROUNDS.keys()
    assert all(ALLREDUCES[name] is algorithm for name, algorithm in ALGORITHMS.items())


@pytest.mark.parametrize("text", ["", "1", "1,2,3", "a,b", "-1,1e9", "1e-6,0", "nan,1", "1e-6,inf"])
def test_a_link_that_is_none_is_refused(text):
    with pytest.raises(ValueError, match="a link is its latency in seconds"):
        read_link(text)


def test_buckets_need_links():
    def work(comm):
        with pytest.raises(ValueError, match="add --allreduce auto"):
            Bucketed(comm, bucket_bytes="auto")
        with pytest.raises(ValueError, match="a number of bytes, or 'auto'"):
            Bucketed(comm, bucket_bytes="large")

    run_ranks(1, work)
