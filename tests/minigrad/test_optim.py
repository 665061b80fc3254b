"""Optimizers against their textbook recurrences, written for one number in plain Python."""

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from minigrad import Parameter, nn, ops, optim
from minigrad.data import Batch
from minigrad.device import to_host
from minigrad.optim import Optimizer, Part
from minigrad.serial import Serial
from minigrad.testing import DEVICE, on_device
from tests.minigrad.ops.op_inputs import shapes

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


def heavy_ball(w, gs, *, lr, momentum, weight_decay, corrected):
    v = 0.0
    for g in gs:
        v = momentum * v + lr * (g + weight_decay * w)
        w = w - v
    return w


def adagrad(w, gs, *, lr, eps, weight_decay):
    total = 0.0
    for g in gs:
        d = g + weight_decay * w
        total += d**2
        w = w - lr * d / (math.sqrt(total) + eps)
    return w


def rmsprop(w, gs, *, lr, alpha, eps, momentum, centered, weight_decay):
    s = m = v = 0.0
    for g in gs:
        d = g + weight_decay * w
        s, m = alpha * s + (1 - alpha) * d**2, alpha * m + (1 - alpha) * d
        v = momentum * v + d / (math.sqrt(s - m**2 if centered else s) + eps)
        w = w - lr * v
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
    "heavy ball": (
        optim.HeavyBall,
        heavy_ball,
        st.fixed_dictionaries(
            {"lr": RATES, "momentum": SHARES, "weight_decay": DECAYS, "corrected": st.booleans()}
        ),
    ),
    "Adagrad": (
        optim.Adagrad,
        adagrad,
        st.fixed_dictionaries({"lr": RATES, "eps": st.sampled_from([1e-10, 1e-3]), "weight_decay": DECAYS}),
    ),
    "RMSprop": (
        optim.RMSprop,
        rmsprop,
        st.fixed_dictionaries(
            {
                "lr": RATES,
                "alpha": SHARES,
                "eps": st.sampled_from([1e-8, 1e-3]),
                "momentum": st.just(0.0) | SHARES,
                "centered": st.booleans(),
                "weight_decay": DECAYS,
            }
        ),
    ),
    "Adam": (optim.Adam, adam, adam_settings),
    "AdamW": (optim.AdamW, adamw, adam_settings),
}


def follows_recurrence(
    make: Callable[[list[Parameter]], Optimizer],
    recurrence: Callable[[float, list[float]], float],
    start: np.ndarray,
    gradients: Sequence[np.ndarray],
) -> None:
    """After one step per gradient every element is where the textbook's ``recurrence(w, gs)`` puts it.

    The update happens in place, in float64 within a few roundings (1e-12), and leaves gradients as they were.
    """
    parameter = Parameter(on_device(start))
    optimizer, data = make([parameter]), parameter.data
    for g in gradients:
        parameter.grad = on_device(g.copy())
        optimizer.step()
        assert np.array_equal(to_host(parameter.grad), g), "the optimizer wrote into the gradient"
        assert parameter.data is data, "the optimizer replaced the array instead of updating it"
    for place in np.ndindex(start.shape):
        expected = recurrence(float(start[place]), [float(g[place]) for g in gradients])
        value = float(data[place])
        assert abs(value - expected) <= 1e-12 * max(1.0, abs(expected)), f"{value}, by the book {expected}"


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


def stepped(optimizer, gradients, rates):
    """The one parameter after a step of each rate by each gradient."""
    (w,) = optimizer.parameters
    for optimizer.lr, g in zip(rates, gradients, strict=True):
        w.grad = None if g is None else on_device(g.copy())
        optimizer.step()
    return to_host(w.data)


def moved(make, rates, corrected=True, skip=None, **settings):
    """Where ``make`` and plain SGD end, from one start, at changing rates."""
    rng = np.random.default_rng(0)
    start, gradients = rng.normal(size=4), list(rng.normal(size=(len(rates), 4)))
    if skip is not None:
        gradients[skip % len(rates)] = None
    ends = []
    for optimizer in (make, optim.SGD):
        extra = {"corrected": corrected} if optimizer is make else {}
        w = Parameter(on_device(start))
        ends.append(stepped(optimizer([w], 1.0, **settings, **extra), gradients, rates))
    return ends


def is_sgd_at_any_rates(make, **settings):
    """The law: with the momentum corrected, heavy ball goes where SGD goes."""
    actual, expected = moved(make, **settings)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-12 * np.abs(expected).max())


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


def lars(ws, gs, lr, *, momentum, weight_decay, trust):
    """By the paper, for whole parameters: ``gs`` holds a list of gradients for each step."""
    vs = [0.0 * w for w in ws]
    for step in gs:
        for i, g in enumerate(step):
            norm_w, norm_g = np.sqrt((ws[i] ** 2).sum()), np.sqrt((g**2).sum())
            rate = lr
            if norm_w and norm_g and ws[i].ndim > 1:
                rate *= trust * norm_w / (norm_g + weight_decay * norm_w)
            vs[i] = momentum * vs[i] + rate * (g + weight_decay * ws[i])
            ws[i] = ws[i] - vs[i]
    return ws


def lars_follows_the_paper(make, lr=2.0, momentum=0.5, weight_decay=0.1, trust=0.1, steps=3):
    """The law; one starts at 0, one has a gradient of 0 at first; the last two have one axis and none."""
    rng = np.random.default_rng(0)
    starts = [rng.normal(size=(2, 3)), np.zeros((4, 1)), rng.normal(size=(1, 2, 2))]
    starts += [rng.normal(size=3), np.asarray(rng.normal())]
    gradients = [[rng.normal(size=np.shape(w)) for w in starts] for _ in range(steps)]
    gradients[0][2] = np.zeros((1, 2, 2))
    settings = {"momentum": momentum, "weight_decay": weight_decay, "trust": trust}
    ws = [Parameter(on_device(w.copy())) for w in starts]
    optimizer = make(ws, lr, **settings)
    for gs in gradients:
        for w, g in zip(ws, gs, strict=True):
            w.grad = on_device(g.copy())
        optimizer.step()
    for w, expected in zip(ws, lars(starts, gradients, lr, **settings), strict=True):
        np.testing.assert_allclose(to_host(w.data), expected, rtol=1e-12, atol=1e-14)


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


def clipping_keeps_the_direction(make, limit, scale=1.0):
    """The law: afterwards all gradients together have norm min(norm, limit), and point where they did."""
    rng = np.random.default_rng(0)
    ws = [Parameter(on_device(np.zeros(shape))) for shape in ((3, 2), (), (4,))]
    gradients = [scale * rng.normal(size=w.shape) for w in ws]
    for w, g in zip(ws, gradients, strict=True):
        w.grad = on_device(np.array(g))
    make(ws, 1.0).clipped(limit).step()
    before, after = (
        np.concatenate([np.ravel(g) for g in gs]) for gs in (gradients, [to_host(w.grad) for w in ws])
    )
    norm = np.linalg.norm(before)
    np.testing.assert_allclose(after, before * min(1.0, limit / norm), rtol=1e-12)
    np.testing.assert_allclose(np.concatenate([np.ravel(to_host(w.data)) for w in ws]), -after, rtol=1e-12)


def clipped_by_the_book(gradients: Sequence[Sequence[np.ndarray]], limit: float) -> list[list[np.ndarray]]:
    """The gradients of each step, times limit / norm where their joint 2-norm is above ``limit``."""
    steps = []
    for gs in gradients:
        norm = math.sqrt(math.fsum(float(v) ** 2 for g in gs for v in np.ravel(g)))
        steps.append([np.asarray(g * (limit / norm if norm > limit else 1.0)) for g in gs])
    return steps


def clipping_comes_before_the_recurrence(
    make: Callable[..., Optimizer],
    recurrence: Callable[..., list[np.ndarray]],
    limit: float,
    seed: int,
    **settings: Any,
) -> None:
    """A clipped optimizer puts each parameter where the textbook's recurrence of clipped gradients does.

    ``recurrence(start, gradients, **settings)`` is of all parameters at once. Some steps are clipped, some
    are not: gradients of one step are ten times as large as those of the next.
    """
    rng = np.random.default_rng(seed)
    starts = [np.asarray(rng.normal(size=shape)) for shape in ((2, 3), (3,), (2, 1, 2), ())]
    signs = [[rng.uniform(0.5, 2, w.shape) * rng.choice([-1, 1], w.shape) for w in starts] for _ in range(4)]
    gradients = [[np.asarray(g * 10.0 ** -(t % 2)) for g in gs] for t, gs in enumerate(signs)]
    ws = [Parameter(on_device(w.copy())) for w in starts]
    optimizer = make(ws, **settings).clipped(limit)
    for gs in gradients:
        for w, g in zip(ws, gs, strict=True):
            w.grad = on_device(g.copy())
        optimizer.step()
    expected = recurrence(starts, clipped_by_the_book(gradients, limit), **settings)
    for w, end in zip(ws, expected, strict=True):
        np.testing.assert_allclose(to_host(w.data), end, rtol=1e-11, atol=1e-13)


def of_elements(recurrence: Callable[..., float]) -> Callable[..., list[np.ndarray]]:
    """A recurrence of one number, for each element of each parameter."""

    def of_all(starts, gradients, **settings):
        ends = [w.copy() for w in starts]
        for i, w in enumerate(starts):
            for place in np.ndindex(w.shape):
                ends[i][place] = recurrence(
                    float(w[place]), [float(gs[i][place]) for gs in gradients], **settings
                )
        return ends

    return of_all


def lars_of_all(starts, gradients, *, lr, **settings):
    return lars([w.copy() for w in starts], gradients, lr, **settings)


LARS_SETTINGS = {"lr": RATES, "momentum": SHARES, "weight_decay": DECAYS, "trust": SHARES}
CLIPPED = {name: (make, of_elements(recurrence), drawn) for name, (make, recurrence, drawn) in CASES.items()}
CLIPPED["LARS"] = (optim.LARS, lars_of_all, st.fixed_dictionaries(LARS_SETTINGS))


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
