"""Laws of lessons/minigrad_course/machines/prefetch.py: steps of drawn layers, and of real ranks."""

import hypothesis.strategies as st
from hypothesis import given, settings

from tests.minigrad_course.machines import prefetch_laws as laws

layers = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=6)


@given(layers=layers)
def test_closed_forms(layers):
    laws.closed_forms_are_steps(layers)


@settings(max_examples=settings().max_examples // 2)
@given(layers=layers, prefetch=st.integers(0, 3), ranks=st.integers(2, 4))
def test_stage_3(layers, prefetch, ranks):
    laws.stage_3_takes_as_long(layers, prefetch, ranks)
