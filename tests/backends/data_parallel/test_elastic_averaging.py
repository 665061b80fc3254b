"""Laws of backends/data_parallel/averaging.py: what the exchange of elastic averaging conserves, and the
loop of the paper, on every rank.
"""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from backends.comm import run_ranks
from backends.comm.collectives import allgather
from backends.data_parallel.averaging import ElasticAveraging
from backends.laws import bound_for
from minigrad import optim
from minigrad.data import shares
from minigrad.serial import Serial
from tests.backends.data_parallel.averaging_laws import conserves, exchanged
from tests.backends.data_parallel.trained_apart import Plain, batches_of, built, close, step
from tests.bugs.mutant import mutant

SIZES = st.lists(st.integers(1, 11), min_size=1, max_size=5)


def pulls(strategy, comm, alpha):
    """Assert the rule itself: x - alpha (x - c), and c + alpha times the sum of x - c."""
    (x, c), (y, d) = exchanged(strategy, comm)
    np.testing.assert_array_equal(y, x - alpha * (x - c))
    np.testing.assert_array_equal(d, c + sum(alpha * (other - c) for other in allgather(comm, x)))


ALPHAS = st.sampled_from([0.0, 0.125, 0.5, 0.75, 1.0])  # dyadic: with whole numbers nothing is rounded


@given(ranks=st.integers(2, 6), alpha=ALPHAS, seed=st.integers(0, 99))
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_sum_of_models_and_center_is_conserved(dtype, ranks, alpha, seed):
    def work(comm):
        conserves(lambda c: ElasticAveraging(c, alpha=alpha), comm, dtype=dtype, seed=seed)
        pulls(lambda c: ElasticAveraging(c, alpha=alpha), comm, alpha)

    run_ranks(ranks, work)


@given(ranks=st.integers(2, 6), alpha=st.floats(0, 1))
def test_conserved_to_rounding_for_any_alpha(ranks, alpha):
    def work(comm):
        (x, c), (y, d) = exchanged(lambda c: ElasticAveraging(c, alpha=alpha), comm)
        total = [np.sum(allgather(comm, a), axis=0) + b for a, b in ((x, c), (y, d))]
        np.testing.assert_allclose(total[1], total[0], rtol=0, atol=50 * 7 * bound_for(np.float64))

    run_ranks(ranks, work)


@given(ranks=st.integers(2, 5))
def test_models_at_the_center_stay(ranks):
    def work(comm):
        backend = ElasticAveraging(comm, alpha=0.3)
        model = backend.place(built(Plain, comm.rank))
        before = model.state_dict()
        backend.exchange(model)
        close(model.state_dict(), before, bound=0)
        np.testing.assert_array_equal(backend.center, backend.layout.weights())

    run_ranks(ranks, work)


@given(ranks=st.integers(2, 5), sizes=SIZES)
def test_alpha_zero_is_independent_training_to_the_last_bit(ranks, sizes):
    def work(comm):
        backend = ElasticAveraging(comm, alpha=0.0, period=1)
        model, alone = backend.place(built(Plain, comm.rank)), built(Plain)
        runs = [(m, optim.SGD(m.parameters(), 0.1, momentum=0.9)) for m in (model, alone)]
        for batch in batches_of(sizes):
            loss = step(backend, *runs[0], batch)
            if len(mine := backend.shard(batch)):
                assert step(Serial(), *runs[1], mine) == loss
            close(model.state_dict(), alone.state_dict(), bound=0)

    run_ranks(ranks, work)


def elastic_by_the_textbook(ranks, sizes, alpha, period):
    """The center at the end: p models one after the other, with the rule as the paper has it."""
    models = [built(Plain) for _ in range(ranks)]
    optimizers = [optim.SGD(m.parameters(), 0.1, momentum=0.9) for m in models]
    center = models[0].state_dict()
    for t, batch in enumerate(batches_of(sizes), 1):
        for rank, share in enumerate(shares(len(batch), ranks)):
            if len(mine := batch[share]):
                step(Serial(), models[rank], optimizers[rank], mine)
        if t % period == 0 or t == len(sizes):
            x = [m.state_dict() for m in models]
            for name in center:
                pull = [alpha * (one[name] - center[name]) for one in x]
                for one, d in zip(x, pull, strict=True):
                    one[name] = one[name] - d
                center[name] = center[name] + sum(pull)
            for m, one in zip(models, x, strict=True):
                m.load_state_dict(one)
    return center


def ends_at_the_center(strategy, comm, sizes, alpha, period):
    """Assert that after ``finalize`` every rank's model is the textbook's center."""
    backend = strategy(comm)
    model = backend.place(built(Plain, comm.rank))
    optimizer = optim.SGD(model.parameters(), 0.1, momentum=0.9)
    for batch in batches_of(sizes):
        step(backend, model, optimizer, batch)
    backend.finalize(model)
    close(model.state_dict(), elastic_by_the_textbook(comm.size, sizes, alpha, period))


@given(ranks=st.integers(2, 5), sizes=SIZES, alpha=st.floats(0, 1), period=st.integers(1, 3))
def test_elastic_averaging_is_the_loop_of_the_textbook(ranks, sizes, alpha, period):
    def work(comm):
        strategy = lambda c: ElasticAveraging(c, alpha=alpha, period=period)  # noqa: E731
        ends_at_the_center(strategy, comm, sizes, alpha, period)

    run_ranks(ranks, work)


def test_by_default_the_center_moves_nine_tenths_of_the_way_to_the_mean():
    assert run_ranks(3, lambda comm: ElasticAveraging(comm).alpha) == [0.9 / 3] * 3


ELASTIC_BUGS = {
    "only its own difference": ("self.allreduce(self.comm, pull)", "pull"),
    "the center moves first": (
        "        for parameter, part in zip(self.layout.parameters, self.layout.views(pull), strict=True):\n"
        "            parameter.data -= part\n        self.center += self.allreduce(self.comm, pull)",
        "        self.center += self.allreduce(self.comm, pull)\n"
        "        pull = self.alpha * (self.layout.weights() - self.center)\n"
        "        for parameter, part in zip(self.layout.parameters, self.layout.views(pull), strict=True):\n"
        "            parameter.data -= part",
    ),
    "the center stays": ("self.center += ", "_ = self.center + "),
    "away from the center": ("parameter.data -= part", "parameter.data += part"),
    "the mean of the differences": (
        "self.allreduce(self.comm, pull)",
        "self.allreduce(self.comm, pull) / self.size",
    ),
}


@pytest.mark.parametrize("bug", ELASTIC_BUGS)
def test_the_laws_of_elastic_averaging_catch(bug):
    module = mutant("backends.data_parallel.averaging", ELASTIC_BUGS[bug])
    strategy = lambda c: module.ElasticAveraging(c, alpha=0.5, period=2)  # noqa: E731
    with pytest.raises(AssertionError):
        run_ranks(3, lambda comm: conserves(strategy, comm))
    with pytest.raises(AssertionError):
        run_ranks(3, lambda comm: pulls(strategy, comm, 0.5))
    with pytest.raises(AssertionError):
        run_ranks(3, lambda comm: ends_at_the_center(strategy, comm, [7, 3, 5], 0.5, 2))
