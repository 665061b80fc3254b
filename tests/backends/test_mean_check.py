"""Laws of minigrad/mean_check.py: a loss that is no mean over samples is refused in the first step;
a mean trains as if unchecked.
"""

from functools import partial

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from backends.comm import run_ranks
from backends.data_parallel import DataParallel, NaiveDataParallel, Sharded
from backends.data_parallel.averaging import LocalSGD
from backends.laws import distances
from backends.model_parallel import ModelParallel
from backends.pipeline import Pipeline
from backends.pipeline.asynchronous import AsynchronousPipeline
from backends.pipeline.layer_wise import LayerWise
from minigrad import nn, ops
from minigrad.serial import Serial
from tests.backends import mean_check_laws
from tests.backends.mean_check_laws import a_penalty_is_refused, batches_of, masked

MEANS = {
    "cross-entropy": lambda out, y: ops.cross_entropy(out, y),
    "smooth": partial(ops.cross_entropy, label_smoothing=0.1),
    "squares": lambda out, y: ops.mse(out[:, 0], y * 1.0),
    "critic": lambda out, y: (out[:, 0] * (2.0 * (y > 0) - 1.0)).mean(),  # the terms nearly cancel
    "large": lambda out, y: (out * 1e4 + 1e6).mean(),
    "penalty": lambda out, y: ops.cross_entropy(out, y) + 0.1,
    "half": lambda out, y: 0.5 * ops.huber_loss(out[:, 0], y * 1.0),
}
OTHERS = {
    "sum": lambda out, y: (out * out).sum(),
    "maximum": lambda out, y: (out * out).max(),
    "masked": masked,
    "root": lambda out, y: (out * out).mean() ** 0.5,
    "variance": lambda out, y: ((out - out.mean(axis=0)) ** 2).mean(),
    "contrast": lambda out, y: ops.cross_entropy(out @ out.T, np.arange(len(y))),
}


@pytest.mark.parametrize("name", MEANS)
@given(
    sizes=st.lists(st.integers(2, 9), min_size=1, max_size=3),
    dtype=st.sampled_from([np.float32, np.float64]),
    scale=st.sampled_from([1e-3, 1.0, 1e3]),
)
def test_a_mean_changes_no_bit(name, sizes, dtype, scale):
    mean_check_laws.a_mean_changes_no_bit(MEANS[name], sizes, dtype=dtype, scale=scale)


@pytest.mark.parametrize("name", OTHERS)
def test_no_mean_is_refused(name):
    for strategy in (DataParallel, NaiveDataParallel, partial(Sharded, stage=3)):
        mean_check_laws.no_mean_is_refused(OTHERS[name], strategy)
    mean_check_laws.no_mean_is_refused(OTHERS[name], lambda comm: Serial(2), ranks=1)


def test_it_is_refused_as_soon_as_a_rank_has_several_samples():
    mean_check_laws.no_mean_is_refused(OTHERS["sum"], sizes=(1, 2, 2, 6))


def test_a_loss_of_the_whole_batch_may_be_any():
    """Where nobody weights a part: on one machine, where layers are split, and where models are averaged."""
    for strategy in (lambda comm: Serial(), ModelParallel, LocalSGD):

        def work(comm, strategy=strategy):
            backend = strategy(comm)
            rng = np.random.default_rng(0)
            model = backend.place(nn.Sequential(nn.Linear(4, 4, rng=rng), nn.Linear(4, 3, rng=rng)))
            return backend.step(model, batches_of([8])[0], OTHERS["maximum"])

        run_ranks(2, work)


def test_a_loss_that_draws_is_left_alone():
    """It has another value whenever it is called, so nothing can be told from its parts."""
    rng = np.random.default_rng(0)
    backend = Serial(2)
    model = nn.Linear(4, 3, rng=rng)

    def noisy(out, y):
        return ((out - rng.normal(size=out.shape)) ** 2).mean()

    for batch in batches_of([8, 8]):
        backend.step(model, batch, noisy)


def test_a_penalty_on_the_weights_counts_once():
    """The shares of a batch add up to 1, so what each rank adds to its mean loss is added once."""

    def gradients(backend):
        model = backend.place(nn.Linear(4, 3, rng=np.random.default_rng(0)).to(dtype=np.float64))

        def loss(out, y):
            return ops.cross_entropy(out, y) + 0.1 * (model.weight * model.weight).sum()

        backend.step(model, batches_of([7], np.float64)[0], loss)
        return backend.state.full_gradients(model)

    expected = gradients(Serial())
    for actual in run_ranks(3, lambda comm: gradients(DataParallel(comm))):
        for name, (_, relative) in distances(expected, actual).items():
            assert relative <= 1e-12, name


@pytest.mark.parametrize("strategy", [Pipeline, LayerWise, AsynchronousPipeline, ModelParallel])
def test_a_penalty_on_parts_of_the_model_is_refused(strategy):
    a_penalty_is_refused(strategy)


@pytest.mark.parametrize("strategy", [Pipeline, LayerWise, ModelParallel])
def test_a_penalty_on_the_whole_model_trains_like_serial(strategy):
    """On one rank, which holds all of it."""

    def gradients(backend):
        rng = np.random.default_rng(0)
        layers = nn.Linear(4, 4, rng=rng), nn.Tanh(), nn.Linear(4, 3, rng=rng)
        model = backend.place(nn.Sequential(*layers).to(dtype=np.float64))

        def loss(out, y):
            return ops.cross_entropy(out, y) + 0.1 * sum((p * p).sum() for p in model.parameters())

        backend.step(model, batches_of([7], np.float64)[0], loss)
        return backend.state.full_gradients(model)

    expected = gradients(Serial())
    (actual,) = run_ranks(1, lambda comm: gradients(strategy(comm)))
    for name, (_, relative) in distances(expected, actual).items():
        assert relative <= 1e-12, name


def test_it_is_checked_once():
    calls = []

    def loss(out, y):
        calls.append(len(y))
        return ops.mse(out[:, 0], y * 1.0)

    backend, model = Serial(2), nn.Linear(4, 3, rng=np.random.default_rng(0))
    first, second = batches_of([8, 8])
    backend.step(model, first, loss)
    assert sorted(set(calls)) == [1, 2, 3, 4]
    del calls[:]
    backend.step(model, second, loss)
    assert calls == [4, 4]


def test_a_pipeline_checks_on_its_last_rank():
    def work(comm):
        rng = np.random.default_rng(0)
        backend = Pipeline(comm, micro_batches=2)
        model = backend.place(nn.Sequential(nn.Linear(4, 4, rng=rng), nn.Linear(4, 3, rng=rng)))
        backend.step(model, batches_of([8])[0], OTHERS["sum"])

    with pytest.raises(ValueError, match="no mean over samples"):
        run_ranks(2, work)
