"""Laws of minigrad/lr_schedules.py: a schedule's rates at its start and after its end."""

from itertools import pairwise

import pytest

from minigrad.lr_schedules import (
    constant,
)


def rates(schedule, steps):
    return [schedule(t) for t in range(steps)]


def stays_at_its_end(make, lr, steps, beyond):
    """The law: asked for a step past its last, a schedule gives the rate of that, and rates never rise."""
    schedule = make(lr, steps)
    assert schedule(steps + beyond) == schedule(steps)
    values = rates(schedule, steps + beyond + 1)
    assert all(after <= before for before, after in pairwise(values)), "the rate rises again"
    assert all(0 <= rate <= lr for rate in values)


def warms_up_gradually(warm_up, lr=0.8, start=0.1, steps=7, base=constant):
    """The law: from ``start`` by equal amounts, one each step, to the schedule, which then goes on."""
    wrapped = base(lr, 20)
    schedule, reached = warm_up(wrapped, steps, start), wrapped(steps)
    for t in range(steps):
        assert schedule(t) == pytest.approx(start + (reached - start) * t / steps, rel=1e-14, abs=1e-16)
    assert rates(schedule, 25)[steps:] == rates(wrapped, 25)[steps:]
