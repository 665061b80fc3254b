"""Laws of lessons/minigrad_course/machines/overlap.py: two micro-batches on drawn times."""

import hypothesis.strategies as st
from hypothesis import given

from tests.minigrad_course.machines import overlap_laws as laws

seconds, turns, ranks = st.integers(1, 9), st.integers(1, 4), st.integers(2, 4)


@given(forward=seconds, backward=seconds, nbytes=seconds, n=turns, ranks=ranks)
def test_a_forward_and_a_backward(forward, backward, nbytes, n, ranks):
    laws.times_add_up_in_sequence(forward, backward, nbytes, n, ranks)
    laws.a_forward_hides_beside_a_backward(forward, backward, nbytes, n, ranks)


@given(forward=seconds, nbytes=seconds, n=turns, ranks=ranks)
def test_two_forwards(forward, nbytes, n, ranks):
    laws.two_forwards_fill(forward, nbytes, n, ranks)
