"""Laws of lessons/minigrad_course/machines/expert_costs.py: formulas of experts on drawn sizes."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from minigrad_course.machines.expert_costs import capacity_of, dropped_by_chance

from tests.minigrad_course.machines import expert_cost_laws as laws

sizes = st.integers(1, 9)


@given(tokens=st.integers(0, 40), experts=sizes, choices=sizes, eighths=st.integers(0, 20))
def test_a_capacity(tokens, experts, choices, eighths):
    laws.a_capacity_is_the_least_that_is_enough(tokens, experts, choices, eighths)


@given(tokens=st.integers(1, 5), experts=st.integers(1, 4), capacity=st.integers(0, 6))
def test_a_dropped_share(tokens, experts, capacity):
    laws.a_dropped_share_is_the_mean_over_all_choices(tokens, experts, capacity)


@pytest.mark.parametrize(("factor", "percent"), [(1, 13.1), (1.25, 4.5), (1.5, 1.2), (2, 0.034)])
def test_64_tokens_and_8_experts(factor, percent):
    assert 100 * dropped_by_chance(64, 8, capacity_of(64, 8, 1, factor)) == pytest.approx(percent, rel=0.02)


@given(width=sizes, hidden=sizes, experts=sizes, choices=sizes)
def test_a_mixture(width, hidden, experts, choices):
    laws.a_mixture_has_as_many_numbers(width, hidden, experts, choices)


@given(experts=st.lists(st.integers(0, 3), min_size=1, max_size=4), width=sizes, seed=st.integers(0, 99))
def test_bytes(experts, width, seed):
    counts = np.random.default_rng(seed).integers(0, 4, (len(experts), sum(experts)))
    laws.bytes_are_those_of_every_row(counts, experts, width)
    laws.bytes_are_those_of_every_row(counts, experts, width, itemsize=2)
