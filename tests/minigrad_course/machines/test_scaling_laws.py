"""Laws of lessons/minigrad_course/machines/scaling_laws.py: speed-ups of drawn seconds."""

import hypothesis.strategies as st
import pytest
from hypothesis import given
from minigrad_course.machines.scaling_laws import amdahl, karp_flatt

from tests.minigrad_course.machines import scaling_law_laws as laws

seconds = st.integers(1, 1000)


@given(serial=st.integers(0, 1000), shared=seconds, ranks=st.integers(1, 10_000))
def test_fixed_work(serial, shared, ranks):
    laws.fixed_work_is_a_quotient_of_times(serial, shared, ranks)


@given(serial=st.integers(0, 1000), each=seconds, ranks=st.integers(1, 10_000))
def test_growing_work(serial, each, ranks):
    laws.growing_work_is_a_quotient_of_times(serial, each, ranks)


def test_a_twentieth_that_is_serial_allows_a_factor_of_twenty():
    assert 19.9 < amdahl(0.05, 10_000) < 20


def test_the_speedup_of_one_rank_says_nothing():
    with pytest.raises(ValueError, match="the speed-up of 2 ranks or more, got 1"):
        karp_flatt(1.0, 1)
