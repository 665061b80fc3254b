"""Learning rates over time, and how they follow the batch size.

Lecture section: large mini-batches. Lesson: 07_large_batches.

A schedule is made from the base rate and the number of steps, then called with a step, counted from 0. After
the last step the rate stays the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from .lookup import check_choice, lookup

Schedule = Callable[[int], float]


def constant(lr: float, steps: int) -> Schedule:
    """The same rate at every step."""
    return lambda t: lr


def cosine(lr: float, steps: int) -> Schedule:
    """From ``lr`` down to 0 along half a cosine (Loshchilov and Hutter 2017)."""
    last = max(steps, 1)
    return lambda t: 0.5 * lr * (1 + math.cos(math.pi * min(t, last) / last))


def step(
    lr: float, steps: int, *, milestones: Sequence[float] = (1 / 3, 2 / 3, 8 / 9), divisor: float = 10
) -> Schedule:
    """``lr``, divided by ``divisor`` at each milestone, a share of the ``steps``.

    The default is that of Goyal et al. 2017: a tenth from epochs 30, 60 and 80 of 90 on.
    """
    starts = [round(share * steps) for share in milestones]
    return lambda t: lr / divisor ** sum(min(t, steps) >= start for start in starts)


def warm_up(schedule: Schedule, steps: int, start: float, kind: str = "gradual") -> Schedule:
    """``schedule``, but its first ``steps`` lead to it from the rate ``start`` (Goyal et al. 2017).

    "gradual" adds the same amount at every step, start + (lr - start) t / steps, where lr is the rate that
    ``schedule`` has when it takes over. "constant" stays at ``start``, then jumps. Raises ValueError for
    another kind, and for negative numbers.
    """
    check_choice("kind of warm-up", kind, ("gradual", "constant"))
    if steps < 0 or not start >= 0:
        raise ValueError(
            f"a warm-up takes 0 or more steps from a rate of 0 or more, got {steps} from {start}"
        )
    rise = schedule(steps) - start if kind == "gradual" else 0.0
    return lambda t: start + rise * t / steps if t < steps else schedule(t)


def scaled_lr(lr: float, batch: int, base_batch: int, rule: str = "linear") -> float:
    """The rate for batches of ``batch`` samples where ``lr`` suits ``base_batch`` of them.

    "linear": k times the batch, k times the rate, so that one step does what k small ones did (Goyal et
    al. 2017). "square root": sqrt(k) times the rate, which keeps the variance of a step (Krizhevsky
    2014). Raises ValueError for another rule, and for batches without samples.
    """
    check_choice("scaling rule", rule, ("linear", "square root"))
    if batch < 1 or base_batch < 1:
        raise ValueError(f"batches have at least 1 sample, got batch={batch} and base_batch={base_batch}")
    k = batch / base_batch
    return lr * (k if rule == "linear" else math.sqrt(k))


SCHEDULES: dict[str, Callable[[float, int], Schedule]] = {
    "constant": constant,
    "cosine": cosine,
    "step": step,
}


def find_schedule(name: str) -> Callable[[float, int], Schedule]:
    """The schedule called ``name``; raises ValueError naming the choices."""
    return lookup("schedule", name, SCHEDULES)
