"""Laws of minigrad/optim.py: optimizers against their textbook recurrences, written for one
number in plain Python.
"""

import math
import re

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from minigrad import Parameter, nn, ops, optim
from minigrad.data import Batch
from minigrad.device import to_host
from minigrad.optim import Part
from minigrad.serial import Serial
from minigrad.testing import DEVICE, on_device
from tests.minigrad.ops.op_inputs import shapes
from tests.minigrad.optim_laws import (
    CASES,
    CLIPPED,
    DECAYS,
    RATES,
    SHARES,
    clipping_comes_before_the_recurrence,
    clipping_keeps_the_direction,
    follows_recurrence,
    is_sgd_at_any_rates,
    lars_follows_the_paper,
    moved,
)


@pytest.mark.parametrize("name", [n for n in optim.OPTIMIZERS if n != "lars"])  # a test below is for it
def test_every_optimizer_has_a_recurrence(name):
    assert any(make is optim.OPTIMIZERS[name] for make, _, _ in CASES.values()), f"CASES needs {name!r}"


@pytest.mark.parametrize("name", CASES)
@given(data=st.data())
def test_every_element_goes_where_the_textbook_puts_it(name, data):
    make, recurrence, drawn = CASES[name]
    settings = data.draw(drawn)
    shape, steps = data.draw(shapes(max_dims=2)), data.draw(st.integers(1, 5))
    rng = np.random.default_rng(data.draw(st.integers(0, 999)))
    gradients = [rng.uniform(0.5, 2, shape) * rng.choice([-1, 1], shape) for _ in range(steps)]
    follows_recurrence(
        lambda parameters: make(parameters, **settings),
        lambda w, gs: recurrence(w, gs, **settings),
        rng.normal(size=shape),
        [np.asarray(g) for g in gradients],
    )


@pytest.mark.parametrize("make", optim.OPTIMIZERS.values(), ids=optim.OPTIMIZERS)
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


@pytest.mark.parametrize("make", optim.OPTIMIZERS.values(), ids=optim.OPTIMIZERS)
def test_a_number_is_a_parameter_too(make):
    w = Parameter(on_device(np.float32(1)))
    optimizer, data = make([w], 0.1), w.data
    w.grad = on_device(np.float32(1))
    optimizer.step()
    assert w.data is data
    assert (w.dtype, w.shape) == (np.float32, ())
    assert w.item() < 1


# Heavy ball and LARS


@given(
    rates=st.lists(RATES, min_size=1, max_size=8),
    momentum=SHARES,
    weight_decay=DECAYS,
    skip=st.none() | st.integers(0, 7),
)
def test_heavy_ball_corrected_is_sgd_at_any_rates(rates, momentum, weight_decay, skip):
    is_sgd_at_any_rates(optim.HeavyBall, rates=rates, momentum=momentum, weight_decay=weight_decay, skip=skip)


def test_heavy_ball_uncorrected_overshoots_when_the_rate_falls():
    actual, expected = moved(optim.HeavyBall, [1.0, 0.1], corrected=False, momentum=0.9)
    assert np.abs(actual - expected).max() > 0.1 * np.abs(expected).max()


def test_heavy_ball_goes_on_after_a_rate_of_0():
    actual, expected = moved(optim.HeavyBall, [0.0, 0.5, 0.25], momentum=0.9)
    assert np.isfinite(actual).all()
    actual, expected = moved(optim.HeavyBall, [0.0], momentum=0.9)
    np.testing.assert_array_equal(actual, expected)


@given(lr=RATES, momentum=SHARES, weight_decay=DECAYS, trust=SHARES, steps=st.integers(1, 4))
def test_lars_follows_the_paper(lr, momentum, weight_decay, trust, steps):
    lars_follows_the_paper(optim.LARS, lr, momentum, weight_decay, trust, steps)


@given(scale=st.floats(1e-3, 1e3), lr=RATES, trust=SHARES)
def test_lars_moves_each_parameter_by_its_norm_however_large_the_gradient(scale, lr, trust):
    rng = np.random.default_rng(0)
    starts, gradients = rng.normal(size=(2, 5, 1)), rng.normal(size=(2, 5, 1))
    steps = []
    for factor in (1.0, scale):
        ws = [Parameter(on_device(w.copy())) for w in starts]
        for w, g, by in zip(ws, gradients, (factor, 1.0), strict=True):
            w.grad = on_device(g * by)
        optim.LARS(ws, lr, trust=trust).step()
        steps.append([to_host(w.data) - start for w, start in zip(ws, starts, strict=True)])
    np.testing.assert_allclose(steps[0], steps[1], rtol=1e-9)
    ratios = [np.linalg.norm(d) / np.linalg.norm(w) for d, w in zip(steps[0], starts, strict=True)]
    np.testing.assert_allclose(np.array(ratios), lr * trust, rtol=1e-9)


@given(
    order=st.permutations(range(7)),
    image=st.booleans(),
    settings=st.fixed_dictionaries({"trust": SHARES, "momentum": SHARES, "weight_decay": DECAYS}),
)
def test_lars_does_not_move_by_rounding(order, image, settings):
    """The gradient of a bias before batch-norm is rounding alone, another one in another order of samples."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(7, 2, 3, 3)), rng.integers(0, 3, 7)
    ends = []
    for rows in (list(range(7)), list(order)):
        rng = np.random.default_rng(1)
        layers = [nn.Conv2d(2, 4, 3, rng=rng), nn.BatchNorm(4), nn.Flatten()]
        layers = layers if image else [nn.Flatten(), nn.Linear(18, 4, rng=rng), nn.BatchNorm(4)]
        model = nn.Sequential(*layers, nn.ReLU(), nn.Linear(4, 3, rng=rng)).to(
            dtype=np.float64, device=DEVICE
        )
        optimizer = optim.LARS(model.parameters(), 0.5, **settings)
        for _ in range(3):
            optimizer.zero_grad()
            Serial().step(model, Batch(on_device(x[rows]), y[rows]), ops.cross_entropy)
            optimizer.step()
        ends.append(model.state_dict())
    for name, value in ends[0].items():
        np.testing.assert_allclose(ends[1][name], value, rtol=0, atol=1e-9)


# Clipping


@pytest.mark.parametrize("name", CLIPPED)
@given(data=st.data(), limit=st.floats(0.3, 8.0), seed=st.integers(0, 999))
def test_a_clipped_optimizer_follows_the_recurrence_of_clipped_gradients(name, data, limit, seed):
    make, recurrence, drawn = CLIPPED[name]
    clipping_comes_before_the_recurrence(make, recurrence, limit, seed, **data.draw(drawn))


@given(limit=st.floats(0.01, 10), scale=st.floats(0.01, 10))
def test_clipping_keeps_the_direction_and_limits_the_norm(limit, scale):
    clipping_keeps_the_direction(optim.SGD, limit, scale)


def test_gradients_below_the_limit_are_left_bit_for_bit():
    w = Parameter(on_device(np.zeros(3)))
    w.grad = gradient = on_device(np.array([0.1, 0.2, 0.3]))
    optim.SGD([w], 1.0).clipped(0.4).step()
    assert gradient.tolist() == [0.1, 0.2, 0.3]


def test_gradients_of_0_are_not_divided_by_their_norm():
    w = Parameter(on_device(np.ones(3)))
    w.grad = on_device(np.zeros(3))
    optim.SGD([w], 1.0).clipped(0.4).step()
    assert w.data.tolist() == [1, 1, 1]


@given(
    dtype=st.sampled_from([np.float16, np.float32]),
    exponents=st.lists(st.integers(-20, 35), min_size=1, max_size=3),
    limit=st.floats(0.01, 1),
    seed=st.integers(0, 99),
)
def test_clipping_and_lars_know_norms_whose_squares_do_not_fit_the_dtype(dtype, exponents, limit, seed):
    """An exploded gradient is scaled down, not to 0; norms are those that float64 has."""
    rng = np.random.default_rng(seed)
    info = np.finfo(dtype)
    most = (-4, 4) if dtype is np.float16 else (-20, 35)
    gradients = [
        (rng.normal(size=(4, 2)) * 10.0 ** np.clip(e, *most)).clip(info.min, info.max) for e in exponents
    ]
    gradients = [g.astype(dtype) for g in gradients]
    weights = [Parameter(on_device(np.ones((4, 2), dtype))) for _ in gradients]

    def given_gradients():
        for w, g in zip(weights, gradients, strict=True):
            w.grad = on_device(g.copy())

    given_gradients()
    optim.SGD(weights, 1e-3).clipped(limit).step()
    exact = [g.astype(np.float64) for g in gradients]
    scale = min(1.0, limit / np.sqrt(sum((g**2).sum() for g in exact)))
    for w, g in zip(weights, exact, strict=True):
        np.testing.assert_allclose(to_host(w.grad), g * scale, rtol=8 * info.eps, atol=float(info.tiny))
    given_gradients()
    optimizer = optim.LARS(weights, 1.0, trust=0.5)
    norms = [
        (np.linalg.norm(to_host(w.data).astype(np.float64)), np.linalg.norm(g))
        for w, g in zip(weights, exact, strict=True)
    ]
    squares = optimizer.squares([Part(i, w.data, w.grad) for i, w in enumerate(weights)])
    np.testing.assert_allclose(np.sqrt(squares), np.array(norms), rtol=16 * info.eps)


# What is no list of parameters, and what would train nothing


@given(counts=st.lists(st.integers(1, 3), min_size=1, max_size=4), seed=st.integers(0, 99))
def test_a_parameter_given_more_than_once_moves_once(counts, seed):
    rng = np.random.default_rng(seed)
    for name, make in optim.OPTIMIZERS.items():
        ends = []
        for several in (counts, [1] * len(counts)):
            ws = [Parameter(on_device(np.full((2, 2), i + 1.0))) for i in range(len(counts))]
            parameters = [w for w, n in zip(ws, several, strict=True) for _ in range(n)]
            order = rng.permutation(len(parameters)) if several is counts else range(len(parameters))
            optimizer = make([parameters[i] for i in order], 0.1).clipped(1.0)
            for w in ws:
                w.grad = on_device(to_host(w.data).copy())
            optimizer.step()
            ends.append([to_host(w.data) for w in ws])
        np.testing.assert_allclose(ends[0], ends[1], rtol=1e-12, err_msg=name)


LAYER = nn.Linear(2, 2, rng=np.random.default_rng(0))


@pytest.mark.parametrize("make", optim.OPTIMIZERS.values(), ids=optim.OPTIMIZERS)
@pytest.mark.parametrize(
    ("value", "kind", "message"),
    [
        (LAYER, TypeError, "a list of parameters, such as model.parameters(); got Linear"),
        (nn.Sequential(LAYER), TypeError, "such as model.parameters(); got Sequential"),
        (LAYER.weight, TypeError, "such as model.parameters(); got Parameter"),
        (LAYER.named_parameters(), TypeError, "such as model.parameters(); got NamedParameters"),
        ([LAYER], TypeError, "such as model.parameters(); got one of Linear"),
        ([LAYER.weight, np.ones(2)], TypeError, "such as model.parameters(); got one of ndarray"),
        ([LAYER.parameters()], TypeError, "such as model.parameters(); got one of list"),
        ([], ValueError, "such as model.parameters(); got none, so nothing would be trained"),
        (nn.ReLU().parameters(), ValueError, "got none, so nothing would be trained"),
    ],
    ids=["module", "sequence", "parameter", "names", "modules", "arrays", "lists", "none", "no layers"],
)
def test_what_is_no_list_of_parameters_is_refused(make, value, kind, message):
    with pytest.raises(kind, match=re.escape(message)):
        make(value, 0.1)


@pytest.mark.parametrize("make", optim.OPTIMIZERS.values(), ids=optim.OPTIMIZERS)
@pytest.mark.parametrize("lr", [-0.1, math.nan, math.inf])
def test_a_rate_that_is_no_rate_is_refused_at_any_time(make, lr):
    w = Parameter(on_device(np.ones(2)))
    with pytest.raises(ValueError, match="lr must be positive, got"):
        make([w], lr)
    optimizer = make([w], 0.1)
    w.grad, optimizer.lr = on_device(np.ones(2)), lr
    with pytest.raises(
        ValueError, match=f"lr must not be negative, and finite, got {lr}; look at the schedule"
    ):
        optimizer.step()
    assert to_host(w.data).tolist() == [1, 1]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda ws: optim.SGD(ws, 1.0).clipped(0.0), "clipped to a norm above 0, got 0.0"),
        (lambda ws: optim.SGD(ws, 1.0).clipped(float("nan")), "clipped to a norm above 0, got nan"),
        (lambda ws: optim.LARS(ws, 1.0, trust=0.0), "trust must be positive, got 0.0"),
        (lambda ws: optim.HeavyBall(ws, 1.0, momentum=-1.0), "momentum must not be negative, got -1.0"),
        (lambda ws: optim.RMSprop(ws, alpha=1.0), r"alpha must lie in \[0, 1\), got 1.0"),
        (lambda ws: optim.find_optimizer("adamax"), "unknown optimizer 'adamax'; choose one of sgd, heavy"),
    ],
)
def test_settings_out_of_range_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make([Parameter(np.zeros(1))])
