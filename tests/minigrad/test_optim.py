"""Optimizers against their textbook recurrences, written for one number in plain Python."""

import math

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from minigrad import Parameter, optim, testing
from minigrad.testing import on_device

RATES = st.floats(1e-3, 1.0)
DECAYS = st.just(0.0) | st.floats(1e-3, 0.5)
SHARES = st.floats(0.1, 0.99)


def sgd(w, gs, *, lr, momentum=0.0, nesterov=False, weight_decay=0.0):
    v = 0.0
    for g in gs:
        d = g + weight_decay * w
        v = momentum * v + d
        w = w - lr * (d + momentum * v if nesterov else v)
    return w


def adagrad(w, gs, *, lr, eps, weight_decay):
    total = 0.0
    for g in gs:
        d = g + weight_decay * w
        total += d**2
        w = w - lr * d / (math.sqrt(total) + eps)
    return w


def adam(w, gs, *, lr, betas, eps, weight_decay, decoupled=False):
    m = v = 0.0
    for t, g in enumerate(gs, 1):
        d = g if decoupled else g + weight_decay * w
        if decoupled:
            w = w - lr * weight_decay * w
        m = betas[0] * m + (1 - betas[0]) * d
        v = betas[1] * v + (1 - betas[1]) * d**2
        m_hat, v_hat = m / (1 - betas[0] ** t), v / (1 - betas[1] ** t)
        w = w - lr * m_hat / (math.sqrt(v_hat) + eps)
    return w


def adamw(w, gs, **settings):
    return adam(w, gs, decoupled=True, **settings)


# Gradients stay away from 0, where g / sqrt(g^2) magnifies any rounding.
adam_settings = st.fixed_dictionaries(
    {
        "lr": RATES,
        "betas": st.tuples(SHARES, SHARES),
        "eps": st.sampled_from([1e-8, 1e-3]),
        "weight_decay": DECAYS,
    }
)
CASES = {
    "plain": (optim.SGD, sgd, st.fixed_dictionaries({"lr": RATES, "weight_decay": DECAYS})),
    "momentum": (
        optim.SGD,
        sgd,
        st.fixed_dictionaries(
            {"lr": RATES, "momentum": SHARES, "nesterov": st.booleans(), "weight_decay": DECAYS}
        ),
    ),
    "Adagrad": (
        optim.Adagrad,
        adagrad,
        st.fixed_dictionaries({"lr": RATES, "eps": st.sampled_from([1e-10, 1e-3]), "weight_decay": DECAYS}),
    ),
    "Adam": (optim.Adam, adam, adam_settings),
    "AdamW": (optim.AdamW, adamw, adam_settings),
}


@pytest.mark.parametrize("name", CASES)
@given(data=st.data())
def test_every_element_goes_where_the_textbook_puts_it(name, data):
    make, recurrence, drawn = CASES[name]
    settings = data.draw(drawn)
    shape, steps = data.draw(testing.shapes(max_dims=2)), data.draw(st.integers(1, 5))
    rng = np.random.default_rng(data.draw(st.integers(0, 999)))
    gradients = [rng.uniform(0.5, 2, shape) * rng.choice([-1, 1], shape) for _ in range(steps)]
    testing.follows_recurrence(
        lambda parameters: make(parameters, **settings),
        lambda w, gs: recurrence(w, gs, **settings),
        rng.normal(size=shape),
        [np.asarray(g) for g in gradients],
    )


@pytest.mark.parametrize("make", [optim.SGD, optim.Adagrad, optim.Adam, optim.AdamW])
def test_parameters_without_a_gradient_and_frozen_ones_stay(make):
    moving, idle, frozen = (Parameter(on_device(np.ones(2))) for _ in range(3))
    optimizer = make([moving, idle, frozen], 0.1, weight_decay=0.1)
    moving.grad, frozen.grad = on_device(np.ones(2)), on_device(np.ones(2))
    frozen.requires_grad = False
    optimizer.step()
    assert moving.data[0] < 1
    assert idle.data.tolist() == frozen.data.tolist() == [1, 1]


def test_a_changed_learning_rate_acts_on_the_next_step():
    w = Parameter(on_device(np.zeros(1)))
    optimizer = optim.SGD([w], 1.0)
    for optimizer.lr in (1.0, 0.5):
        w.grad = on_device(np.ones(1))
        optimizer.step()
    assert w.data.tolist() == [-1.5]


def test_zero_grad_forgets():
    w = Parameter(on_device(np.zeros(1)))
    w.grad = on_device(np.ones(1))
    optim.SGD([w], 1.0).zero_grad()
    assert w.grad is None


@pytest.mark.parametrize("make", [optim.SGD, optim.Adagrad, optim.Adam, optim.AdamW])
def test_a_number_is_a_parameter_too(make):
    w = Parameter(on_device(np.float32(1)))
    optimizer, data = make([w], 0.1), w.data
    w.grad = on_device(np.float32(1))
    optimizer.step()
    assert w.data is data
    assert (w.dtype, w.shape) == (np.float32, ())
    assert w.item() < 1
