"""Laws of minigrad/lr_schedules.py: a schedule's rates at its start and after its end."""

import math
from itertools import pairwise

import pytest

from minigrad.lr_schedules import constant


def rates(schedule, steps):
    return [schedule(t) for t in range(steps)]


def stays_at_its_end(make, lr, steps, beyond):
    """The law: asked for a step past its last, a schedule gives the rate of that, and rates never rise."""
    schedule = make(lr, steps)
    assert schedule(steps + beyond) == schedule(steps)
    values = rates(schedule, steps + beyond + 1)
    assert all(after <= before for before, after in pairwise(values)), "the rate rises again"
    assert all(0 <= rate <= lr for rate in values)


def is_the_schedule_of_transformers(warm_up, cosine, lr=0.8, steps=12, n=5, min_lr=0.1):
    """The law: a straight line from 0 to ``lr`` at step n, then half a cosine to ``min_lr`` at the end."""
    schedule = warm_up(cosine(lr, steps, from_step=n, min_lr=min_lr), n, 0.0)
    for t in range(n):
        assert schedule(t) == pytest.approx(lr * t / n, rel=1e-14, abs=1e-16)
    assert schedule(n) == pytest.approx(lr, rel=1e-14), "it does not reach lr"
    for t in range(n, steps + 1):
        angle = math.pi * (t - n) / max(steps - n, 1)
        assert schedule(t) == pytest.approx(min_lr + (lr - min_lr) * math.cos(angle / 2) ** 2, rel=1e-12)
    assert rates(schedule, steps + 5)[steps:] == [schedule(steps)] * 5


def warms_up_gradually(warm_up, lr=0.8, start=0.1, steps=7, base=constant):
    """The law: from ``start`` by equal amounts, one each step, to the schedule, which then goes on."""
    wrapped = base(lr, 20)
    schedule, reached = warm_up(wrapped, steps, start), wrapped(steps)
    for t in range(steps):
        assert schedule(t) == pytest.approx(start + (reached - start) * t / steps, rel=1e-14, abs=1e-16)
    assert rates(schedule, 25)[steps:] == rates(wrapped, 25)[steps:]
