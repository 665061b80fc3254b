"""Laws of minigrad/lr_schedules.py: schedules and scaling rules are their formulas, at the
start, in the middle and at the end.
"""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minigrad import nn, ops, optim
from minigrad.data import Batch
from minigrad.lr_schedules import (
    SCHEDULES,
    ReduceLROnPlateau,
    constant,
    cosine,
    exponential,
    find_schedule,
    scaled_lr,
    step,
    warm_up,
)
from minigrad.train import fit
from tests.bugs.mutant import mutant
from tests.minigrad.lr_schedule_laws import (
    is_the_schedule_of_transformers,
    rates,
    stays_at_its_end,
    warms_up_gradually,
)

RATES = st.floats(1e-3, 10)
BASES = {"constant": constant, "cosine": cosine, "step": step}
ANY = optim.SGD(nn.Linear(1, 1, rng=np.random.default_rng(0)).parameters(), 1.0)


def test_step_is_goyals_recipe():
    values = rates(step(3.2, 90), 91)
    assert values[:30] == [3.2] * 30
    assert values[30:60] == [0.32] * 30
    assert values[60:80] == [3.2 / 100] * 20
    assert values[80:] == [3.2 / 1000] * 11


def test_the_milestones_and_the_divisor_of_step_can_be_chosen():
    assert rates(step(1.0, 8, milestones=[0.5, 0.75], divisor=2), 9) == [1.0] * 4 + [0.5] * 2 + [0.25] * 3


def test_cosine_ends_at_0():
    schedule = cosine(0.4, 10)
    assert (schedule(0), schedule(5)) == (0.4, pytest.approx(0.2, rel=1e-15))
    assert schedule(10) == pytest.approx(0, abs=1e-16)


@given(
    base=st.sampled_from(sorted(SCHEDULES)),
    lr=RATES,
    steps=st.integers(1, 100),
    beyond=st.integers(0, 250),
    warm=st.integers(0, 30),
)
def test_every_schedule_stays_at_its_end(base, lr, steps, beyond, warm):
    stays_at_its_end(SCHEDULES[base], lr, steps, beyond)
    for kind in ("gradual", "constant"):
        schedule = warm_up(SCHEDULES[base](lr, steps), warm, 0.0, kind)
        end = max(steps, warm)
        assert schedule(end + beyond) == schedule(end)


@given(milestones=st.lists(st.floats(0, 2), max_size=4), steps=st.integers(1, 50), beyond=st.integers(0, 200))
def test_milestones_behind_the_end_are_not_reached(milestones, steps, beyond):
    schedule = step(1.0, steps, milestones=milestones)
    assert schedule(steps + beyond) == schedule(steps)


@given(lr=RATES, start=RATES | st.just(0.0), steps=st.integers(0, 22), base=st.sampled_from(list(BASES)))
def test_gradual_warm_up_rises_by_the_same_each_step(lr, start, steps, base):
    warms_up_gradually(warm_up, lr, start, steps, BASES[base])


@given(lr=st.floats(1e-3, 10), steps=st.integers(1, 40), least=st.floats(0, 1), data=st.data())
def test_a_cosine_begins_after_the_warm_up(lr, steps, least, data):
    n = data.draw(st.integers(0, steps))
    is_the_schedule_of_transformers(warm_up, cosine, lr, steps, n, least * lr)


@pytest.mark.parametrize("settings", [{"from_step": -1}, {"from_step": 9}, {"min_lr": -0.1}, {"min_lr": 2.0}])
def test_a_cosine_outside_of_its_range_is_refused(settings):
    with pytest.raises(ValueError, match="a cosine falls from lr 1.0 to a min_lr of 0 to lr, from one of 8 "):
        cosine(1.0, 8, **settings)


def test_gradual_warm_up_exactly():
    schedule = warm_up(constant(1.0, 16), 8, start=0.5)
    assert rates(schedule, 10) == [0.5, 0.5625, 0.625, 0.6875, 0.75, 0.8125, 0.875, 0.9375, 1.0, 1.0]


def test_constant_warm_up_stays_and_jumps():
    schedule = warm_up(step(1.0, 9), 2, start=0.25, kind="constant")
    assert rates(schedule, 5) == [0.25, 0.25, 1.0, 0.1, 0.1]


def test_no_steps_of_warm_up_leave_the_schedule_alone():
    for kind in ("gradual", "constant"):
        assert rates(warm_up(cosine(1.0, 5), 0, 0.1, kind), 6) == rates(cosine(1.0, 5), 6)


@given(lr=RATES, k=st.integers(1, 64), base_batch=st.integers(1, 256))
def test_k_times_the_batch_takes_k_times_the_rate(lr, k, base_batch):
    assert scaled_lr(lr, k * base_batch, base_batch) == lr * k
    assert scaled_lr(lr, k * base_batch, base_batch, "square root") == lr * math.sqrt(k)


def test_goyals_rates():
    assert scaled_lr(0.1, 8192, 256) == pytest.approx(3.2, rel=1e-15)
    assert scaled_lr(0.1, 128, 256) == 0.05


def test_one_large_step_is_k_small_ones_where_the_gradient_is_constant():
    """What the linear rule assumes: the gradient does not change over k small steps."""
    x = np.random.default_rng(0).normal(size=(8, 3))
    ends = []
    for batch_size, lr in ((2, 0.1), (8, scaled_lr(0.1, 8, 2))):
        model = nn.Sequential(nn.Linear(3, 1, rng=np.random.default_rng(1))).to(dtype=np.float64)
        optimizer = optim.SGD(model.parameters(), lr)
        fit(model, optimizer, lambda out, _: out.mean(), Batch(x, np.zeros(8)), batch_size=batch_size)
        ends.append(np.concatenate([p.data.ravel() for p in model.parameters()]))
    np.testing.assert_allclose(ends[0], ends[1], rtol=1e-13)


def test_the_warmed_up_rate_reaches_the_optimizer():
    values = []
    model = nn.Linear(2, 2, rng=np.random.default_rng(0))
    optimizer = optim.SGD(model.parameters(), 1.0)
    data = Batch(np.zeros((4, 2), np.float32), np.zeros(4, int))
    fit(
        model,
        optimizer,
        ops.cross_entropy,
        data,
        epochs=2,
        batch_size=2,
        schedule=warm_up(constant(1.0, 4), 2, 0.5),
        on_step=lambda *_: values.append(optimizer.lr),
    )
    assert values == [0.5, 0.75, 1.0, 1.0]


def test_an_exponential_schedule_falls_by_the_same_ratio():
    assert rates(exponential(0.5, 10, gamma=0.5), 4) == [0.5, 0.25, 0.125, 0.0625]
    assert exponential(0.5, 10)(10) == pytest.approx(0.005, rel=1e-12)


def plateau_by_the_book(measures, lr, *, mode, factor, patience, cooldown, threshold):
    """The rate after each measure, with PyTorch's defaults elsewhere."""
    best, bad, cooling, applied = (math.inf if mode == "min" else -math.inf), 0, 0, []
    for x in measures:
        better = x < best * (1 - threshold) if mode == "min" else x > best * (1 + threshold)
        best, bad = (x, 0) if better else (best, bad + 1)
        if cooling > 0:
            cooling, bad = cooling - 1, 0
        if bad > patience:
            lr, cooling, bad = lr * factor, cooldown, 0
        applied.append(lr)
    return applied


def lowers_the_rate_on_a_plateau(make, measures, **settings):
    """The law: after each measure the optimizer has the rate by the book."""
    optimizer = optim.SGD(nn.Linear(1, 1, rng=np.random.default_rng(0)).parameters(), 1.0)
    plateau, applied = make(optimizer, **settings, eps=0.0), []
    for measure in measures:
        plateau.step(measure)
        applied.append(optimizer.lr)
    assert applied == plateau_by_the_book(measures, 1.0, **settings)


@given(
    measures=st.lists(st.integers(-4, 4).map(float) | st.just(math.nan), max_size=30),
    settings=st.fixed_dictionaries(
        {
            "mode": st.sampled_from(["min", "max"]),
            "factor": st.sampled_from([0.5, 0.1]),
            "patience": st.integers(0, 3),
            "cooldown": st.integers(0, 2),
            "threshold": st.sampled_from([1e-4, 0.3]),
        }
    ),
)
def test_a_plateau_lowers_the_rate(measures, settings):
    lowers_the_rate_on_a_plateau(ReduceLROnPlateau, measures, **settings)


def test_a_plateau_stops_at_its_least_rate_and_may_count_absolutely():
    optimizer = optim.SGD(nn.Linear(1, 1, rng=np.random.default_rng(0)).parameters(), 1.0)
    plateau = ReduceLROnPlateau(optimizer, patience=0, threshold=0.5, threshold_mode="abs", min_lr=0.05)
    for measure, lr in ((3.0, 1.0), (2.4, 1.0), (2.0, 0.1), (2.0, 0.05), (2.0, 0.05), (1.0, 0.05)):
        plateau.step(measure)
        assert optimizer.lr == pytest.approx(lr)


MISTAKES = [
    (lambda: exponential(1, 1, gamma=2.0), "gamma must lie above 0 and up to 1, got 2.0"),
    (lambda: ReduceLROnPlateau(ANY, factor=1.0), "factor must be at least 0 and below 1, got 1.0"),
    (lambda: ReduceLROnPlateau(ANY, mode="low"), "unknown mode 'low'; choose one of min, max"),
    (
        lambda: warm_up(constant(1, 1), 1, 0.1, "slow"),
        "unknown kind of warm-up 'slow'; choose one of gradual",
    ),
    (lambda: warm_up(constant(1, 1), -1, 0.1), "0 or more steps from a rate of 0 or more, got -1 from 0.1"),
    (lambda: warm_up(constant(1, 1), 1, -0.1), "0 or more steps from a rate of 0 or more, got 1 from -0.1"),
    (lambda: scaled_lr(1, 2, 2, "cube"), "unknown scaling rule 'cube'; choose one of linear, square root"),
    (lambda: scaled_lr(1, 2, 0), "batches have at least 1 sample, got batch=2 and base_batch=0"),
    (lambda: find_schedule("steep"), "unknown schedule 'steep'; choose one of constant, cosine, step"),
]


@pytest.mark.parametrize(("mistake", "message"), MISTAKES)
def test_a_mistake_is_named(mistake, message):
    with pytest.raises(ValueError, match=message):
        mistake()


def test_every_schedule_starts_at_the_rate_given():
    assert all(make(0.3, 10)(0) == pytest.approx(0.3, rel=1e-15) for make in SCHEDULES.values())


BUGS = {
    "a step late": ("start + rise * t / steps", "start + rise * (t + 1) / steps"),
    "from 0": ("start + rise * t / steps", "(start + rise) * t / steps"),
    "beyond its end": ("if t < steps else", "if t <= steps + 1 else"),
    "the schedule begins when it ends": ("else schedule(t)", "else schedule(t - steps)"),
    "to the first rate": ("schedule(steps) - start", "schedule(0) - start"),
}


@pytest.mark.parametrize("bug", BUGS)
def test_the_law_of_warm_up_catches(bug):
    with pytest.raises(AssertionError):
        warms_up_gradually(mutant("minigrad.lr_schedules", BUGS[bug]).warm_up, base=cosine)


PLATEAUS = {
    "patience is one too many": ("self.bad > self.patience", "self.bad >= self.patience"),
    "the best is the last": (
        "            self.bad += 1",
        "            self.best, self.bad = measure, self.bad + 1",
    ),
    "no cooling down": ("self.cooling, self.bad = self.cooldown, 0", "self.bad = 0"),
    "the threshold with the wrong sign": ("self.best * (1 - step)", "self.best * (1 + step)"),
}


@pytest.mark.parametrize("bug", PLATEAUS)
def test_the_law_of_the_plateau_catches(bug):
    settings = {"mode": "min", "factor": 0.5, "patience": 1, "cooldown": 2, "threshold": 0.3}
    measures = [4.0, 3.0, 2.9, 3.5, 3.4, 3.3, 1.0, 9.0, 1.0, 9.0, 1.0, 9.0, 1.0, 1.0, 1.0]
    lowers_the_rate_on_a_plateau(ReduceLROnPlateau, measures, **settings)
    with pytest.raises(AssertionError):
        broken = mutant("minigrad.lr_schedules", PLATEAUS[bug]).ReduceLROnPlateau
        lowers_the_rate_on_a_plateau(broken, measures, **settings)
