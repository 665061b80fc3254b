"""Laws of lessons/minigrad_course/machines/half_precision.py: formulas of sixteen bits on drawn numbers."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from minigrad_course.machines.half_precision import bytes_of_a_parameter

from tests.minigrad_course.machines import half_precision_laws as laws

seeds = st.integers(0, 10**6)


@given(place=st.integers(1, len(laws.NUMBERS) - 1))
def test_a_hole(place):
    laws.a_hole_is_the_distance_of_neighbors(place)


@given(seed=seeds, power=st.integers(-14, 16))
def test_lost_shares(seed, power):
    rng = np.random.default_rng(seed)
    sizes = (rng.normal(size=(5, 7)) * 2.0 ** rng.integers(-26, 2, size=(5, 7))).astype(np.float32)
    sizes[rng.random((5, 7)) < 0.2] = 0
    sizes[0, :3] = 2.0**-14, -(2.0**-25), 1.01 * 2.0**-25
    laws.shares_are_those_of_rounded_arrays(sizes, power)


@given(seed=seeds, ranks=st.integers(1, 5), power=st.integers(-24, 8))
def test_a_bound_of_sums(seed, ranks, power):
    xs = np.random.default_rng(seed).normal(size=(ranks, 20)) * 2.0**power
    laws.a_bound_holds_in_any_order(xs.astype(np.float16))


def test_a_bound_that_is_reached():
    laws.a_bound_is_no_larger_than_needed()


@given(
    exponents=st.lists(st.integers(-6, 4), max_size=40), start=st.integers(8, 20), interval=st.integers(1, 6)
)
def test_a_path_of_the_scale(exponents, start, interval):
    laws.a_path_is_that_of_the_dynamic_scale(exponents, start, interval)


@pytest.mark.parametrize("itemsize", [2, 4])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_bytes(itemsize, momentum):
    laws.bytes_are_those_of_arrays(itemsize, momentum)


@given(
    itemsize=st.sampled_from([2, 4]),
    moments=st.integers(0, 2),
    ranks=st.integers(1, 9),
    stage=st.integers(0, 3),
)
def test_bytes_of_ranks(itemsize, moments, ranks, stage):
    laws.shares_of_ranks_add_up(itemsize, moments, ranks, stage)


def test_adam_has_sixteen_bytes_in_both():
    assert bytes_of_a_parameter(2) == bytes_of_a_parameter(4) == 16
