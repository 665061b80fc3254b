"""Laws of minigrad/optim.py: textbook recurrences, written for one number in plain Python; and of
minigrad/optim_loops.py: the bits of the readable updates.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any
from unittest.mock import patch

import hypothesis.strategies as st
import numpy as np

from minigrad import Parameter, optim, optim_loops
from minigrad.device import to_host
from minigrad.optim import Optimizer
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


def rmsprop(w, gs, *, lr, alpha, eps, momentum, centered, weight_decay):
    s = m = v = 0.0
    for g in gs:
        d = g + weight_decay * w
        s, m = alpha * s + (1 - alpha) * d**2, alpha * m + (1 - alpha) * d
        v = momentum * v + d / (math.sqrt(s - m**2 if centered else s) + eps)
        w = w - lr * v
    return w


def adam(w, gs, *, lr, betas, eps, weight_decay, amsgrad=False, decoupled=False):
    m = v = largest = 0.0
    for t, g in enumerate(gs, 1):
        d = g if decoupled else g + weight_decay * w
        if decoupled:
            w = w - lr * weight_decay * w
        m = betas[0] * m + (1 - betas[0]) * d
        v = betas[1] * v + (1 - betas[1]) * d**2
        largest = max(v, largest)
        m_hat, v_hat = m / (1 - betas[0] ** t), (largest if amsgrad else v) / (1 - betas[1] ** t)
        w = w - lr * m_hat / (math.sqrt(v_hat) + eps)
    return w


def adamw(w, gs, **settings):
    return adam(w, gs, decoupled=True, **settings)


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


def lars_of_all(starts, gradients, *, lr, **settings):
    return lars([w.copy() for w in starts], gradients, lr, **settings)


def heavy_ball(w, gs, *, lr, momentum, weight_decay, corrected):
    v = 0.0
    for g in gs:
        v = momentum * v + lr * (g + weight_decay * w)
        w = w - v
    return w


def uphill(recurrence: Callable[..., float]) -> Callable[..., float]:
    """The ``recurrence`` with one setting more, ``maximize``: every gradient is then its opposite."""

    def either_way(w, gs, *, maximize=False, **settings):
        return recurrence(w, [-g if maximize else g for g in gs], **settings)

    return either_way


# Gradients stay away from 0, where g / sqrt(g^2) magnifies any rounding.
adam_settings = st.fixed_dictionaries(
    {
        "lr": RATES,
        "betas": st.tuples(SHARES, SHARES),
        "eps": st.sampled_from([1e-8, 1e-3]),
        "weight_decay": DECAYS,
        "amsgrad": st.booleans(),
        "maximize": st.booleans(),
    }
)
CASES = {
    "plain": (
        optim.SGD,
        uphill(sgd),
        st.fixed_dictionaries({"lr": RATES, "weight_decay": DECAYS, "maximize": st.booleans()}),
    ),
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
        uphill(adagrad),
        st.fixed_dictionaries(
            {
                "lr": RATES,
                "eps": st.sampled_from([1e-10, 1e-3]),
                "weight_decay": DECAYS,
                "maximize": st.booleans(),
            }
        ),
    ),
    "RMSprop": (
        optim.RMSprop,
        uphill(rmsprop),
        st.fixed_dictionaries(
            {
                "lr": RATES,
                "alpha": SHARES,
                "eps": st.sampled_from([1e-8, 1e-3]),
                "momentum": st.just(0.0) | SHARES,
                "centered": st.booleans(),
                "weight_decay": DECAYS,
                "maximize": st.booleans(),
            }
        ),
    ),
    "Adam": (optim.Adam, uphill(adam), adam_settings),
    "AdamW": (optim.AdamW, uphill(adamw), adam_settings),
}


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


LARS_SETTINGS = {"lr": RATES, "momentum": SHARES, "weight_decay": DECAYS, "trust": SHARES}
CLIPPED = {name: (make, of_elements(recurrence), drawn) for name, (make, recurrence, drawn) in CASES.items()}
CLIPPED["LARS"] = (optim.LARS, lars_of_all, st.fixed_dictionaries(LARS_SETTINGS))


# Groups of parameters

GROUPED = (  # shapes of parameters in three groups, the last of which is empty
    ((2, 3), (3,)),
    ((), (2, 1, 2)),
    (),
)


def groups_follow_the_recurrence(
    make: Callable[..., Optimizer],
    recurrence: Callable[..., list[np.ndarray]],
    settings: Sequence[dict[str, Any]],
    limit: float | None,
    seed: int,
) -> None:
    """Each group goes where the ``recurrence`` of all its parameters puts them with the group's settings.

    ``settings[0]`` are those of the optimizer; the others, of the groups, override them. With a ``limit``
    the gradients of all groups are clipped together.
    """
    rng = np.random.default_rng(seed)
    starts = [[np.asarray(rng.normal(size=shape)) for shape in shapes] for shapes in GROUPED]
    everything = [w for ws in starts for w in ws]
    gradients = [
        [np.asarray(rng.uniform(0.5, 2, w.shape) * rng.choice([-1, 1], w.shape)) for w in everything]
        for _ in range(4)
    ]
    groups = [[Parameter(on_device(w.copy())) for w in ws] for ws in starts]
    of_all, *own = settings
    optimizer = make([{"params": ws, **some} for ws, some in zip(groups, own, strict=True)], **of_all)
    if limit is not None:
        optimizer.clipped(limit)
    for gs in gradients:
        for w, g in zip((w for ws in groups for w in ws), gs, strict=True):
            w.grad = on_device(g.copy())
        optimizer.step()
    clipped = gradients if limit is None else clipped_by_the_book(gradients, limit)
    first = 0
    for ws, of_group, some in zip(groups, starts, own, strict=True):
        last = first + len(ws)
        ends = recurrence(of_group, [gs[first:last] for gs in clipped], **of_all | some)
        for w, end in zip(ws, ends, strict=True):
            np.testing.assert_allclose(to_host(w.data), end, rtol=1e-11, atol=1e-13)
        first = last


def a_rate_scales_all_groups(
    make: Callable[..., Optimizer], ratios: Sequence[float], rates: Sequence[float], seed: int
) -> None:
    """A group whose rate was ``ratio`` times the optimizer's goes where an optimizer at that rate goes.

    ``rates`` are those of the whole optimizer, as a schedule sets them, perhaps 0.
    """
    rng = np.random.default_rng(seed)
    starts = [rng.normal(size=(2, 3)) for _ in ratios]
    together, apart = ([Parameter(on_device(w.copy())) for w in starts] for _ in range(2))
    groups = [{"params": [w], "lr": 0.5 * ratio} for w, ratio in zip(together, ratios, strict=True)]
    optimizer = make(groups, lr=0.5)
    alone = [make([w], lr=0.5 * ratio) for w, ratio in zip(apart, ratios, strict=True)]
    for rate in rates:
        for w, other in zip(together, apart, strict=True):
            w.grad, other.grad = (on_device(g.copy()) for g in [rng.normal(size=(2, 3))] * 2)
        optimizer.lr = rate
        optimizer.step()
        for one, ratio in zip(alone, ratios, strict=True):
            one.lr = ratio * rate
            one.step()
    for w, other in zip(together, apart, strict=True):
        np.testing.assert_allclose(to_host(w.data), to_host(other.data), rtol=1e-12, atol=1e-14)


def has_the_bits_of_update(make: Any, shape: Any, dtype: Any, order: Any) -> None:
    """Parameters and state after some steps, whether loops take parameters of this size or none."""
    runs = []
    for small in (0, 1 << 60):
        rng = np.random.default_rng(0)
        with patch.multiple(optim_loops, SMALL=small, LARGE=0):
            parameter = Parameter(on_device(np.zeros(shape, dtype)))
            parameter.data = on_device(order(rng.normal(size=shape).astype(dtype)))
            optimizer = make([parameter])
            for _ in range(4):
                parameter.grad = on_device(rng.normal(size=shape).astype(dtype))
                optimizer.step()
        arrays = [a for a in optimizer.state[0].values() if not isinstance(a, int)]
        runs.append([to_host(a) for a in (parameter.data, *arrays)])
    for i, (a, b) in enumerate(zip(*runs, strict=True)):
        assert a.dtype == b.dtype == dtype, f"array {i} has dtype {a.dtype}"
        assert np.array_equal(a, b), f"array {i} is off by {np.abs(a - b).max()}"
