"""Learning rates over time: made from the base rate and the number of steps, then called with a step."""

from __future__ import annotations

import math
from collections.abc import Callable

Schedule = Callable[[int], float]


def constant(lr: float, steps: int) -> Schedule:
    """The same rate at every step."""
    return lambda step: lr


def cosine(lr: float, steps: int) -> Schedule:
    """From ``lr`` down to 0 along half a cosine (Loshchilov and Hutter 2017)."""
    return lambda step: 0.5 * lr * (1 + math.cos(math.pi * step / max(steps, 1)))


SCHEDULES: dict[str, Callable[[float, int], Schedule]] = {"constant": constant, "cosine": cosine}


def find_schedule(name: str) -> Callable[[float, int], Schedule]:
    """The schedule called ``name``; raises ValueError naming the choices."""
    if name not in SCHEDULES:
        raise ValueError(f"unknown schedule {name!r}; choose one of {', '.join(SCHEDULES)}")
    return SCHEDULES[name]
