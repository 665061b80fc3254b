"""Laws of minigrad/tape.py: the walk that computes input gradients first and leaves the weights for later."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minigrad import Parameter, Tape, Tensor, nn, ops, testing
from minigrad.device import to_host
from minigrad.ops.fast.linear import WeightPullback
from minigrad.tape import finish_weights
from minigrad.testing import on_device
from tests.minigrad import tape_laws


def two_layers(seed=0):
    rng = np.random.default_rng(seed)
    return nn.Sequential(
        nn.Linear(5, 4, rng=rng, dtype=np.float64), nn.Tanh(), nn.Linear(4, 3, rng=rng, dtype=np.float64)
    ).to(device=testing.DEVICE)


def gradients(model):
    return {name: to_host(p.grad) for name, p in model.named_parameters().items()}


@given(tape_laws.programs())
def test_inputs_first_and_weights_later_give_the_plain_walks_gradients_bit_by_bit(program):
    tape_laws.weights_later_changes_nothing(Tape, program)


def test_a_network_gives_the_same_bits_too():
    runs = []
    for later in (False, True):
        rng = np.random.default_rng(1)
        model = nn.Sequential(
            nn.Conv2d(1, 2, 3, rng=rng), nn.BatchNorm(2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
            nn.Linear(8, 3, rng=rng),
        ).to(device=testing.DEVICE)  # fmt: skip
        x = Tensor(on_device(rng.normal(size=(4, 1, 6, 6)).astype(np.float32)), requires_grad=True)
        with Tape() as tape:
            loss = ops.cross_entropy(model(x), on_device([0, 1, 2, 0]))
        rest = tape.backward(loss, weights_later=later)
        assert x.grad is not None
        assert [p.grad is None for p in model.parameters()] == [later] * len(model.parameters())
        finish_weights(rest)
        runs.append({**gradients(model), "x": to_host(x.grad)})
    for name, plain in runs[0].items():
        assert np.array_equal(plain, runs[1][name]), name


@given(sizes=st.lists(st.integers(1, 4), min_size=1, max_size=4), seed=st.integers(0, 99))
def test_weights_summed_over_micro_batches_are_those_of_the_whole_batch(sizes, seed):
    x = on_device(np.random.default_rng(seed).normal(size=(sum(sizes), 5)))
    whole, parts, announced = two_layers(seed), two_layers(seed), []
    with Tape() as tape:
        loss = (whole(x) * whole(x)).mean()
    tape.backward(loss)
    later, start = [], 0
    for size in sizes:
        with Tape() as tape:
            y = parts(x[start : start + size])
            loss = (y * y).mean()
        later += tape.backward(loss, size / sum(sizes), weights_later=True)
        start += size
    finish_weights(later, announced.append)
    assert len(announced) == 4
    for name, g in gradients(whole).items():
        # Sums of up to 16 rows in two orders: a few roundings of numbers of order 1.
        np.testing.assert_allclose(gradients(parts)[name], g, rtol=1e-12, atol=1e-14)


def test_a_tied_weight_is_announced_once_with_the_sum_of_its_uses():
    w, grads = Parameter(on_device(np.arange(4.0).reshape(2, 2))), []
    plain = Parameter(w.data)
    for parameter, later in ((w, True), (plain, False)):
        with Tape() as tape:
            loss = ops.linear(ops.linear(on_device([[1.0, 2.0]]), parameter), parameter).sum()
        finish_weights(tape.backward(loss, weights_later=later), grads.append)
    assert len(grads) == 1
    assert w.grad is not None and plain.grad is not None
    assert w.grad.tolist() == plain.grad.tolist()


def test_a_linear_weight_over_several_micro_batches_is_one_product(monkeypatch):
    calls = []
    product = staticmethod(lambda ps, gs: calls.append(len(ps)) or gs[0].T @ ps[0].x)
    monkeypatch.setattr(WeightPullback, "sum", product)
    w, later = Parameter(on_device(np.eye(40))), []
    for _ in range(3):
        with Tape() as tape:
            loss = ops.linear(on_device(np.ones((1, 40))), w).sum()
        later += tape.backward(loss, weights_later=True)
    finish_weights(later)
    assert calls == [3]


@pytest.mark.parametrize("spoil", [0, 1])
def test_late_gradients_are_private(spoil):
    b1, b2 = Parameter(on_device(np.ones(3))), Parameter(on_device(np.ones(3)))
    with Tape() as tape:
        loss = (b1 + b2).sum()
    later = tape.backward(loss, weights_later=True)
    finish_weights(later)
    pair = (b1, b2)
    pair[spoil].grad[...] = np.nan  # pyright: ignore[reportOptionalSubscript]
    assert pair[1 - spoil].grad.tolist() == [1, 1, 1]  # pyright: ignore[reportOptionalMemberAccess]
