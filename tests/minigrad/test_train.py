"""Laws of minigrad/train.py, models.py and serial.py: the training
loop and the lessons' networks.
"""

import itertools
import warnings

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from minigrad import Tensor, nn, ops, optim
from minigrad.data import Batch, minibatches
from minigrad.lr_schedules import constant, cosine, find_schedule
from minigrad.models import NETS, find_net, logistic_cost
from minigrad.serial import Serial
from minigrad.strategy import Strategy
from minigrad.train import accuracy, fit
from tests.minigrad.text_laws import a_net_takes_its_own_data

RNG = np.random.default_rng(0)
DATA = Batch(RNG.normal(size=(23, 4)), RNG.integers(0, 3, 23))


def small_model():
    return nn.Sequential(nn.Linear(4, 3, rng=np.random.default_rng(1))).to(dtype=np.float64)


def trained(backend=None, **settings):
    model = small_model()
    optimizer = optim.SGD(model.parameters(), 0.1, momentum=0.9)
    return model, fit(model, optimizer, ops.cross_entropy, DATA, backend=backend, **settings)


def test_fit_is_gradient_descent_written_out():
    model, history = trained(epochs=3, batch_size=5, seed=7)
    w, b = (p.data.copy() for p in small_model().parameters())
    v = [np.zeros_like(w), np.zeros_like(b)]
    losses = []
    for epoch in range(3):
        for batch in minibatches(DATA, 5, seed=7, epoch=epoch):
            z = batch.x @ w.T + b
            p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
            losses.append(-np.log(p[np.arange(len(batch)), batch.y]).mean())
            d = (p - np.eye(3)[batch.y]) / len(batch)
            v = [0.9 * v[0] + d.T @ batch.x, 0.9 * v[1] + d.sum(0)]
            w, b = w - 0.1 * v[0], b - 0.1 * v[1]
    assert history.losses == pytest.approx(losses, rel=1e-12)
    np.testing.assert_allclose(model.parameters()[0].data, w, rtol=1e-11)
    np.testing.assert_allclose(model.parameters()[1].data, b, rtol=1e-11)
    assert history.samples == 3 * 23 and history.samples_per_second > 0


def test_the_schedule_sets_the_rate_of_each_step():
    model, slow = small_model(), small_model()
    for m, schedule in ((model, lambda step: 0.1 * (step == 0)), (slow, None)):
        fit(
            m,
            optim.SGD(m.parameters(), 0.1),
            ops.cross_entropy,
            DATA,
            epochs=4 if schedule else 1,
            schedule=schedule,
        )
    np.testing.assert_array_equal(model.parameters()[0].data, slow.parameters()[0].data)


def test_the_cosine_falls_from_the_rate_to_nothing():
    rates = [cosine(0.4, 100)(step) for step in range(101)]
    assert rates[0] == 0.4 and rates[50] == pytest.approx(0.2) and rates[100] == pytest.approx(0, abs=1e-17)
    assert all(a > b for a, b in itertools.pairwise(rates))
    assert {constant(0.4, 100)(step) for step in range(101)} == {0.4}


def test_an_unknown_schedule_names_the_choices():
    with pytest.raises(ValueError, match="unknown schedule 'steep'; choose one of constant, cosine"):
        find_schedule("steep")


def test_all_samples_at_once():
    assert len(trained(epochs=4)[1].losses) == 4


def test_progress_is_told_step_by_step_and_epoch_by_epoch():
    steps, epochs = [], []
    _, history = trained(
        epochs=2,
        batch_size=10,
        on_step=lambda step, loss: steps.append((step, loss)),
        on_epoch=lambda epoch, so_far: epochs.append((epoch, len(so_far.losses))),
    )
    assert steps == list(enumerate(history.losses)) and epochs == [(0, 3), (1, 6)]


class TurnsBad(Serial):
    def __init__(self, value):
        self.value, self.calls = value, itertools.count()

    def finish(self, model, loss):
        return self.value if next(self.calls) == 4 else loss


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_loss_that_is_not_finite_stops_before_the_update_and_names_the_step(value):
    model = small_model()
    optimizer = optim.SGD(model.parameters(), 0.1)
    steps = []
    with pytest.raises(FloatingPointError, match=r"the loss is -?(nan|inf) at step 4 \(epoch 1\)"):
        fit(
            model,
            optimizer,
            ops.cross_entropy,
            DATA,
            backend=TurnsBad(value),
            epochs=3,
            batch_size=8,
            on_step=lambda *_: steps.append([p.data.copy() for p in model.parameters()]),
        )
    assert len(steps) == 4
    np.testing.assert_array_equal(steps[-1][0], model.parameters()[0].data)


def test_a_batch_of_which_no_label_counts_is_named():
    model = nn.Linear(2, 3, rng=np.random.default_rng(0))
    data = Batch(np.ones((4, 2)), np.full(4, 2))
    with pytest.raises(FloatingPointError, match=r"loss is nan at step 0 .*of the batch's targets counts"):
        fit(model, optim.SGD(model.parameters(), 0.1), nn.CrossEntropyLoss(ignore_index=2), data)
    assert model.weight.grad is not None and not model.weight.grad.any()


def test_an_empty_batch_has_no_mean():
    with pytest.raises(ValueError, match="the batch is empty"):
        Strategy().step(small_model(), DATA[:0], ops.cross_entropy)


def test_accuracy_counts_labels_and_one_hot_rows_alike():
    model = small_model()
    guesses = (DATA.x @ model.parameters()[0].data.T + model.parameters()[1].data).argmax(1)
    expected = float((guesses == DATA.y).mean())
    assert accuracy(model, DATA, batch_size=7) == pytest.approx(expected)
    assert accuracy(model, Batch(DATA.x, np.eye(3)[DATA.y])) == pytest.approx(expected)


COUNTS = {
    "mlp": 784 * 128 + 128 + 128 * 128 + 128 + 1290,
    "lenet": 160 + 4640 + 1568 * 128 + 128 + 1290,
    "vgg": 320 + 9248 + 18496 + 36928 + 3136 * 256 + 256 + 2570,
    "sigmoid": 784 * 25 + 25 + 260,
    "transformer": (92 + 64) * 128 + 2 * (12 * 128**2 + 128 + 5 * 128 + 4 * 128) + 2 * 128,
}


def starts_as_he_says(build, seed):
    """Weights of mean 0 and variance 2 / n_in, within six standard errors; biases 0 (He et al. 2015)."""
    for parameter in build(np.random.default_rng(seed)).parameters():
        if parameter.ndim == 1:
            assert not parameter.data.any()
        else:
            n_in, n = parameter.size // parameter.shape[0], parameter.size
            squares = parameter.data.astype(np.float64) ** 2 * n_in / 2  # of a uniform variable, variance 0.8
            assert abs(squares.mean() - 1) < 6 * (0.8 / n) ** 0.5
            assert abs(parameter.data.mean()) < 6 * (2 / n_in / n) ** 0.5


@given(st.integers(0, 2**32))
def test_the_deep_net_starts_as_he_says(seed):
    starts_as_he_says(find_net("vgg").build, seed)


def test_the_law_of_the_start_catches_the_usual_weights():
    with pytest.raises(AssertionError):
        starts_as_he_says(find_net("lenet").build, 0)


@pytest.mark.parametrize("name", NETS)
def test_every_net_has_the_parameters_it_says_and_takes_its_data(name):
    net = find_net(name)
    model = net.build(np.random.default_rng(0))
    count = sum(p.size for p in model.parameters())
    assert count == COUNTS[name]
    described = (net.build.__doc__ or "").split()
    assert f"{count:,}" in described or name == "sigmoid"
    for dtype in (np.float32, np.float64):
        a_net_takes_its_own_data(net, dtype)


def test_an_unknown_net_names_the_choices():
    with pytest.raises(
        ValueError, match="unknown net 'resnet'; choose one of mlp, lenet, vgg, sigmoid, trans"
    ):
        find_net("resnet")


def test_the_logistic_cost_sums_over_classes_and_averages_over_samples():
    z, t = RNG.normal(size=(5, 10)), np.eye(10)[RNG.integers(0, 10, 5)]
    p = 1 / (1 + np.exp(-z))
    expected = -(t * np.log(p) + (1 - t) * np.log(1 - p)).sum() / 5
    assert logistic_cost(Tensor(z), t).item() == pytest.approx(expected, rel=1e-12)


def test_the_sigmoid_net_starts_within_its_bound():
    parameters = find_net("sigmoid").build(np.random.default_rng(0)).parameters()
    assert all(0 < np.abs(p.data).max() <= 0.12 for p in parameters)


def test_samples_of_more_bits_than_the_model_are_told_once():
    model = nn.Sequential(nn.Linear(4, 3, rng=0))
    optimizer = optim.SGD(model.parameters(), 0.1)
    with pytest.warns(
        UserWarning, match="the samples are float64 and the model is float32.*data.to\\(dtype=np.float32\\)"
    ) as warned_of:
        fit(model, optimizer, ops.cross_entropy, DATA, epochs=3)
    assert len(warned_of) == 1 and warned_of[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit(model, optimizer, ops.cross_entropy, DATA.to(dtype=np.float32))
        trained()
