"""Laws of backends/data_parallel/averaging.py: DiLoCo is local SGD with an outer optimizer, on
every rank; its limits are exact.
"""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from backends.comm import run_ranks
from backends.data_parallel.averaging import DiLoCo, LocalSGD
from minigrad import optim
from tests.backends.data_parallel.diloco_laws import is_the_textbook, trained
from tests.backends.data_parallel.trained_apart import OPTIMIZERS, Plain, built, close
from tests.bugs.mutant import mutant

SIZES = st.lists(st.integers(1, 11), min_size=1, max_size=5)
MOMENTA = st.sampled_from([0.0, 0.5, 0.9])


def is_local_sgd(strategy, comm, sizes, make, **settings):
    """Assert that models and optimizers are those of ``LocalSGD`` to the last bit, after every step."""
    expected = trained(lambda c: LocalSGD(c, **settings), comm, sizes, make)
    for one, other in zip(trained(strategy, comm, sizes, make), expected, strict=True):
        close(one, other, bound=0)


@pytest.mark.parametrize("name", ["momentum", "adam"])
@given(ranks=st.integers(1, 4), sizes=SIZES, period=st.integers(1, 3), averaged=st.booleans())
def test_outer_rate_one_without_outer_momentum_is_local_sgd_to_the_last_bit(
    name, ranks, sizes, period, averaged
):
    settings = {"period": period, "average_momentum": averaged}

    def work(comm):
        strategy = lambda c: DiLoCo(c, outer_rate=1.0, outer_momentum=0.0, **settings)  # noqa: E731
        is_local_sgd(strategy, comm, sizes, OPTIMIZERS[name], **settings)

    run_ranks(ranks, work)


@given(
    ranks=st.integers(2, 4), sizes=SIZES, period=st.integers(1, 3), rate=st.floats(0, 1.5), momentum=MOMENTA
)
def test_diloco_is_the_loop_of_the_textbook(ranks, sizes, period, rate, momentum):
    def work(comm):
        strategy = lambda c: DiLoCo(c, period=period, outer_rate=rate, outer_momentum=momentum)  # noqa: E731
        is_the_textbook(strategy, comm, sizes, period, rate, momentum)

    run_ranks(ranks, work)


@given(momentum=MOMENTA, rate=st.floats(0, 1.5))
def test_the_outer_step_is_that_of_sgd_with_nesterov(momentum, rate):
    """The numbers are those of ``optim.SGD`` with the averaged change as the gradient."""

    def work(comm):
        backend = DiLoCo(comm, outer_rate=rate, outer_momentum=momentum)
        model, other = backend.place(built(Plain)), built(Plain)
        outer = optim.SGD(other.parameters(), rate or 1.0, momentum=momentum, nesterov=momentum > 0)
        outer.lr = rate
        for seed in range(3):
            rng = np.random.default_rng(seed)  # the same change on all ranks
            for p, q in zip(model.parameters(), other.parameters(), strict=True):
                if p.requires_grad:
                    change = rng.normal(size=p.shape)
                    p.data[...] -= change
                    q.grad = change
            backend.samples = 1
            backend.exchange(model)
            outer.step()
        close(model.state_dict(), other.state_dict())

    run_ranks(2, work)


BUGS = {
    "a plain momentum": (
        "self.outer_rate * self.outer_momentum * self.velocity",
        "self.outer_rate * self.velocity",
    ),
    "the change of this rank alone": (
        "        super().exchange(model)\n        mean = self.layout.weights()",
        "        mean = self.layout.weights()\n        super().exchange(model)",
    ),
    "away from the mean": ("change = self.common - mean", "change = mean - self.common"),
    "the velocity starts again": ("self.outer_momentum * self.velocity + change", "change"),
    "the common model stays the first": ("self.common = mean - (", "_ = mean - ("),
}


@pytest.mark.parametrize("bug", BUGS)
def test_the_law_catches(bug):
    module = mutant("backends.data_parallel.averaging", BUGS[bug])
    strategy = lambda c: module.DiLoCo(c, period=2, outer_rate=0.7, outer_momentum=0.9)  # noqa: E731
    with pytest.raises(AssertionError):
        run_ranks(3, lambda comm: is_the_textbook(strategy, comm, [7, 2, 5, 4, 3], 2, 0.7, 0.9))


def test_the_law_of_the_limit_catches_a_rounded_mean():
    """x - D in place of the mean: right but for the last bits."""
    module = mutant(
        "backends.data_parallel.averaging",
        (
            "self.common = mean - (\n            (self.outer_rate - 1) * change",
            "self.common = self.common - (\n            self.outer_rate * change",
        ),
    )
    settings = {"period": 2, "average_momentum": False}
    strategy = lambda c: module.DiLoCo(c, outer_rate=1.0, outer_momentum=0.0, **settings)  # noqa: E731
    with pytest.raises(AssertionError):
        run_ranks(3, lambda c: is_local_sgd(strategy, c, [7, 2, 5], OPTIMIZERS["momentum"], **settings))
