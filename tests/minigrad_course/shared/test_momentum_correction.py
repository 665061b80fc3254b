"""Laws of lessons/minigrad_course/shared/momentum_correction.py: which update loses momentum, and
how much.
"""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from minigrad_course.shared.momentum_correction import basic, corrected, discount


@given(waited=st.integers(0, 30), m=st.floats(0.1, 0.99))
def test_the_basic_update_discounts_what_waited_and_the_corrected_one_does_not(waited, m):
    """One gradient of 1, sent after ``waited`` iterations without any: what each method then did."""
    dense = (1 - m ** (waited + 1)) / (1 - m)
    for method, expected in ((basic, 1.0), (corrected, dense)):
        u, e, moved = np.zeros(1), np.zeros(1), 0.0
        for t in range(waited + 1):
            sent_now = np.array([t == waited])
            step, u, e = method(u, e, np.array([float(t == 0)]), sent_now, m)
            moved += step[0]
        assert abs(moved - expected) <= 1e-12 * expected
        assert abs(moved / dense - (discount(m, waited) if method is basic else 1)) <= 1e-12


@given(
    m=st.floats(0.1, 0.99),
    gradients=st.lists(st.floats(-9, 9), min_size=1, max_size=9),
    period=st.integers(1, 4),
)
def test_without_masking_the_corrected_update_is_dense_momentum_when_all_was_sent(m, gradients, period):
    u, e, velocity, moved, dense = np.zeros(1), np.zeros(1), 0.0, 0.0, 0.0
    for t, g in enumerate(gradients, 1):
        step, u, e = corrected(u, e, np.array([g]), np.array([t % period == 0]), m, masking=False)
        moved, velocity = moved + step[0], m * velocity + g
        dense += velocity
        if t % period == 0:
            assert abs(moved - dense) <= 1e-11 * 90 / (1 - m)
