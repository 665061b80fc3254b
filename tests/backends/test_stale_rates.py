"""Laws of backends/stale_rates.py: by its default rate a parameter server trains nearly as one
machine does, whoever is slow.
"""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from backends.stale_rates import STALE_RATES, damped, find_stale_rate
from tests.backends.default_training import METHODS, injected, serial, served
from tests.backends.lanes import thorough

NEAR, FAR = 0.02, 0.04  # what the seeds may lose on average, and one of them


def behind(train, seeds, method="momentum"):
    """What each seed's test accuracy is above the serial run's."""
    return np.array([train(seed) - serial(seed, method) for seed in seeds])


def slowness(seed, workers):
    """Equal workers, the last one four times slower, or each by a factor of its own."""
    drawn = np.random.default_rng([seed, workers]).uniform(1, 4, workers).tolist()
    return [[1.0] * workers, [*[1.0] * (workers - 1), 4.0], drawn][seed % 3]


@pytest.mark.parametrize(
    ("workers", "seeds"),
    [thorough(2, 1), (4, 1), thorough(4, 3), *(thorough(workers, 10) for workers in (2, 3, 4))],
)
def test_the_default_trains_as_one_machine_nearly(workers, seeds):
    lost = behind(lambda seed: served(seed, workers, slowness(seed, workers)), range(seeds))
    assert lost.mean() > -NEAR and lost.min() > -FAR, lost


@pytest.mark.parametrize("seed", [thorough(0), 1, thorough(2)])
def test_the_default_trains_with_two_servers(seed):
    lost = behind(lambda seed: served(seed, 3, slowness(seed, 3), servers=2), [seed])
    assert lost.min() > -FAR, lost


@pytest.mark.parametrize(
    ("method", "seed"),
    [("nesterov", 0), *(thorough(name, 1) for name in METHODS)]
    + [thorough(name, 0) for name in ("lars", "adagrad", "momentum", "heavy-ball", "adam")],
)
def test_the_default_trains_with_every_optimizer(method, seed):
    lost = behind(lambda seed: served(seed, 3, method=method), [seed], method)
    assert lost.min() > -FAR, lost


@pytest.mark.parametrize(("workers", "seeds"), [thorough(2, 3), (4, 1), thorough(4, 3)])
def test_the_naive_rate_with_momentum_does_not_train(workers, seeds):
    """Two workers' gradients, one update old, it can still bear; four workers', and any older ones, not."""
    assert max(injected(seed, workers, 2 * workers, "naive") for seed in range(seeds)) < 0.5
    if workers == 4:
        assert max(served(seed, workers, stale_rate="naive") for seed in range(seeds)) < 0.5


# Workers cannot keep all gradients as old as that: on average they are stale by the others. So this is
# worse than any machine, and what the default loses there it loses slowly.
BOUNDS = {1: 0.03, 2: 0.05, 4: 0.08}


@pytest.mark.parametrize(
    ("workers", "batches", "seeds"),
    [(4, 2, 2), (2, 4, 2)] + [thorough(n, batches, 5) for n in (2, 4) for batches in BOUNDS],
)
def test_every_gradient_batches_late_costs_a_few_points(workers, batches, seeds):
    lost = behind(lambda seed: injected(seed, workers, batches * workers), range(seeds))
    assert lost.mean() > -BOUNDS[batches], lost


@given(st.integers(0, 1000), st.floats(0.01, 1), st.booleans())
def test_the_damped_rate(staleness, share, adaptive):
    """It is the rate's share where nothing is stale, falls with staleness, and nears Zhang's 1 / tau."""
    factor = damped(staleness, share, adaptive)
    fresh = damped(0, share, adaptive)
    assert damped(0, 1.0, adaptive) == 1 and fresh == (share**0.5 if adaptive else share)
    assert damped(staleness + 1, share, adaptive) < factor <= fresh
    assert adaptive or factor * max(staleness, 1) < 1


@given(st.integers(1, 64))
def test_equal_workers_move_the_parameters_by_between_half_and_all_of_the_rate(workers):
    total = workers * damped(workers - 1, 1 / workers, False)
    np.testing.assert_allclose(total, workers / (2 * workers - 1), rtol=1e-12)
    assert 0.5 < total <= 1


def test_an_unknown_rate():
    with pytest.raises(ValueError, match="unknown stale_rate 'slow'; choose one of damped, divided, naive"):
        find_stale_rate("slow")
    assert [rate(2, 0.5, False) for rate in STALE_RATES.values()] == [0.25, 0.5, 1.0]
