"""Laws of lessons/minigrad_course/machines/stragglers.py: the time of a step with backup workers is the
order statistic, whose mean is the closed form.
"""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from minigrad_course.machines.stragglers import step_seconds


def harmonic(n):
    return sum(1 / k for k in range(1, n + 1))


@pytest.mark.parametrize(("n", "b"), [(96, 4), (96, 0), (10, 3), (1, 5)])
def test_the_mean_time_is_the_closed_form(n, b):
    """To 1 %: the standard error of 50,000 draws is below 0.5 % in all these cases."""
    draw = np.random.default_rng(0)

    def mean_of(draws):
        """In five parts: a worker of the tests is to stay small."""
        times = np.array([step_seconds(draws((10_000, n + b)), n) for _ in range(5)])
        assert times.shape == (5, 10_000)
        return times.mean()

    assert mean_of(lambda shape: draw.exponential(size=shape)) == pytest.approx(
        harmonic(n + b) - harmonic(b), rel=0.01
    )
    assert mean_of(draw.random) == pytest.approx(n / (n + b + 1), rel=0.01)


def test_four_backups_of_a_hundred_save_two_fifths():
    assert harmonic(100) - harmonic(4) == pytest.approx(3.104, abs=5e-4)
    assert harmonic(96) == pytest.approx(5.147, abs=5e-4)


@given(n=st.integers(1, 8), b=st.integers(0, 4), seed=st.integers(0, 99))
def test_backups_never_make_a_step_slower(n, b, seed):
    draws = np.random.default_rng(seed).exponential(size=(50, n + b))
    times = step_seconds(draws, n)
    np.testing.assert_array_equal(times, np.sort(draws, axis=1)[:, n - 1])
    assert (times <= draws[:, :n].max(axis=1)).all()
    if b == 0:
        np.testing.assert_array_equal(times, draws.max(axis=1))


@pytest.mark.parametrize("needed", [0, 6])
def test_only_workers_can_be_waited_for(needed):
    with pytest.raises(ValueError, match=f"of 5 workers a step can wait for 1 to 5, got {needed}"):
        step_seconds(np.zeros((3, 5)), needed)
