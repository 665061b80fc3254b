"""Laws of lessons/minigrad_course/machines/sharding_roofline.py: bounds of drawn machines and layers."""

import math

import hypothesis.strategies as st
import pytest
from hypothesis import given
from minigrad_course.machines.sharding_roofline import data_roofline, model_roofline

from backends.comm.collectives.link import Link
from backends.planner import Hardware
from tests.minigrad_course.machines import sharding_roofline_laws as laws

few = st.integers(1, 5)
machines = st.builds(
    lambda flops, latency, bandwidth: Hardware(flops, Link(latency, bandwidth), math.inf),
    st.integers(1, 40),
    st.integers(0, 6),
    st.integers(1, 6),
)


@pytest.mark.parametrize("name", laws.TRIALS)
@given(machine=machines, ranks=st.integers(2, 4), n=few, m=few, choices=st.integers(1, 3))
def test_a_bound(name, machine, ranks, n, m, choices):
    laws.a_bound_is_the_least_number_of_tokens(name, machine, ranks, n, m, choices)


@given(
    flops=st.integers(1, 200),
    bandwidth=st.integers(1, 40),
    ranks=st.integers(2, 5),
    blocks=st.integers(1, 3),
    itemsize=st.sampled_from([2, 4]),
)
def test_a_ring(flops, bandwidth, ranks, blocks, itemsize):
    machine = Hardware(flops, Link(0.0, bandwidth), math.inf)
    laws.a_ring_is_hidden_in_the_planner(machine, ranks, blocks, itemsize)


def test_published_bounds():
    """Austin et al. 2025: 2,200 tokens on an H100 inside of a node, 2,550 on a TPU v5p along one axis.

    Their bounds are for many ranks, that is without (p - 1) / p.
    """
    for flops, bandwidth, tokens in ((990e12, 450e9, 2200), (4.59e14, 2 * 9e10, 2550)):
        machine = Hardware(flops, Link(0.0, bandwidth), math.inf)
        assert data_roofline(machine, 1_000_000, 1).tokens == pytest.approx(tokens, rel=1e-4)


def test_one_rank_sends_nothing():
    alone = data_roofline(Hardware(1.0, Link(1.0, 1.0), math.inf), 1, 8)
    assert alone.tokens == 0 and alone.ratio(1) == math.inf


def test_too_narrow_a_layer_is_never_bound_by_computing():
    machine = Hardware(8.0, Link(1.0, 1.0), math.inf)
    assert model_roofline(machine, 4, 8, 8).tokens == math.inf
