"""Laws of minigrad/master_weights.py and minigrad/loss_scale.py: drawn, and the use of both."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minigrad import nn, ops, optim
from minigrad.data import Batch
from minigrad.forward_pass import current_pass
from minigrad.loss_scale import DynamicScale, StaticScale
from minigrad.master_weights import PRECISIONS
from minigrad.serial import Serial
from minigrad.tape import Tape
from minigrad.tensor import Parameter, Tensor
from minigrad.train import fit
from tests.minigrad.master_weights_laws import KINDS, masters_are_a_float32_run, scales

SHAPES = st.lists(st.lists(st.integers(0, 4), max_size=3).map(tuple), min_size=1, max_size=3)
OVERFLOWS = st.lists(st.booleans(), min_size=1, max_size=7)


@given(st.lists(st.booleans(), max_size=30), st.integers(1, 4))
def test_a_dynamic_scale_is_halved_and_doubled(overflows, interval):
    scales(DynamicScale(2.0**16, growth_interval=interval), overflows, interval)


@pytest.mark.parametrize("kind", KINDS)
@given(shapes=SHAPES, overflows=OVERFLOWS, precision=st.sampled_from(PRECISIONS))
def test_masters_are_a_float32_run(kind, shapes, overflows, precision):
    if all(0 in shape for shape in shapes) or 0 in shapes[-1]:
        overflows = [False] * len(overflows)  # no element is infinite
    masters_are_a_float32_run(KINDS[kind], shapes, overflows, precision)


def test_a_scale_that_helps_nothing_ends_the_training():
    scale = DynamicScale(2.0**-24)
    with pytest.raises(FloatingPointError, match="try a smaller --lr"):
        scale.skip_step()


@pytest.mark.parametrize("value", [0.0, -1.0, float("inf"), float("nan")])
def test_a_scale_is_positive_and_finite(value):
    with pytest.raises(ValueError, match="positive and finite"):
        StaticScale(value)


def test_parameters_are_converted_before():
    with pytest.raises(ValueError, match=r'model.to\(dtype="float16"\)'):
        optim.SGD([Parameter(np.zeros(3, np.float32))], 0.1).with_master_weights()
    with pytest.raises(ValueError, match="float16, bfloat16"):
        optim.SGD([Parameter(np.zeros(3, np.float16))], 0.1).with_master_weights("float8")


def model_and_optimizer(scale: StaticScale | None = None) -> tuple[nn.Sequential, optim.Optimizer]:
    model = nn.Sequential(nn.Linear(6, 4, rng=np.random.default_rng(0)))
    model.to(dtype="float16")
    return model, optim.Adam(model.parameters(), 0.01).with_master_weights("float16", scale)


def batch() -> Batch:
    rng = np.random.default_rng(1)
    return Batch(rng.normal(size=(12, 6)).astype(np.float16), rng.integers(0, 4, 12))


def test_gradients_of_another_scale_are_refused():
    model, optimizer = model_and_optimizer()
    backend = Serial()
    model = backend.place(model)
    backend.step(model, batch(), nn.CrossEntropyLoss())
    backend.model = model  # Serial holds none; other strategies do
    with pytest.raises(ValueError, match="loss_scale=optimizer.loss_scale"):
        super(Serial, backend).update(model, optimizer)
    optimizer.zero_grad()
    loss = backend.step(model, batch(), nn.CrossEntropyLoss(), loss_scale=optimizer.loss_scale)
    assert 0.5 < loss < 3, "the loss is reported without its scale"


def test_a_step_that_is_left_out_counts_in_no_schedule():
    model, optimizer = model_and_optimizer(DynamicScale(2.0**30))  # overflows at first
    rates = []
    fit(
        model,
        optimizer,
        nn.CrossEntropyLoss(),
        batch(),
        epochs=40,
        schedule=lambda step: rates.append(step) or 0.01,
    )
    assert 0 < optimizer.skipped_steps < 20
    assert rates == [0] * optimizer.skipped_steps + list(range(40 - optimizer.skipped_steps))
    assert optimizer.state[0]["t"] == 40 - optimizer.skipped_steps


@pytest.mark.parametrize("scale", [1.0, 2.0**10])
def test_a_penalty_has_the_scale_of_the_loss(scale):
    """The gradient of a penalty is the scale's multiple, as that of the loss."""
    w = Parameter(np.array([2.0]))

    class Penalized(nn.Sequential):
        def forward(self, x):
            around = current_pass.get()
            assert around is not None
            penalty = (w * w).sum()
            around.penalties.append(penalty.data)
            return ops.with_penalty(x * w, penalty, weight=around.weight)

    loss = Serial().step(Penalized(), Batch(np.ones((3, 1)), np.zeros((3, 1))), ops.mse, loss_scale=scale)
    assert loss == pytest.approx(4 + 4)
    assert w.grad == pytest.approx(scale * (4 + 4))


def test_scaled_by_hand():
    model, optimizer = model_and_optimizer(StaticScale(2.0**7))
    with Tape() as tape:
        loss = ops.cross_entropy(model(Tensor(batch().x)), batch().y)
    tape.backward(loss, optimizer.loss_scale)
    before = model.parameters()[0].data.copy()
    optimizer.step()
    assert not np.array_equal(model.parameters()[0].data, before)
