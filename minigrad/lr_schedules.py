"""Learning rates over time, and how they follow the batch size.

Lecture section: large mini-batches. Lesson: 07_large_batches.

A schedule is made from the base rate and the number of steps, then called with a step, counted from 0. After
the last step the rate stays the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from .lookup import check_choice, lookup
from .optim import Optimizer
from .own_state import OwnState

Schedule = Callable[[int], float]


def constant(lr: float, steps: int) -> Schedule:
    """The rate ``lr`` at every step."""
    return lambda t: lr


def cosine(lr: float, steps: int, *, from_step: int = 0, min_lr: float = 0.0) -> Schedule:
    """From ``lr`` down to ``min_lr`` along half a cosine (Loshchilov and Hutter 2017), after ``from_step``.

    ``warm_up(cosine(lr, steps, from_step=n), n, 0.0)`` is what transformers are usually trained with: a
    straight rise over n steps to ``lr`` itself, then half a cosine over the other ones. Raises ValueError
    unless 0 <= from_step <= steps and 0 <= min_lr <= lr.
    """
    if not (0 <= from_step <= steps and 0 <= min_lr <= lr):
        raise ValueError(
            f"a cosine falls from lr {lr} to a min_lr of 0 to lr, from one of {steps} steps on; got "
            f"min_lr={min_lr} and from_step={from_step}"
        )
    last = max(steps - from_step, 1)
    share = lambda t: (min(max(t, from_step), steps) - from_step) / last  # noqa: E731
    return lambda t: min_lr + 0.5 * (lr - min_lr) * (1 + math.cos(math.pi * share(t)))


def step(
    lr: float, steps: int, *, milestones: Sequence[float] = (1 / 3, 2 / 3, 8 / 9), divisor: float = 10
) -> Schedule:
    """``lr``, divided by ``divisor`` at each milestone, a share of the ``steps``.

    The default is that of Goyal et al. 2017: a tenth from epochs 30, 60 and 80 of 90 on.
    """
    starts = [round(share * steps) for share in milestones]
    return lambda t: lr / divisor ** sum(min(t, steps) >= start for start in starts)


def exponential(lr: float, steps: int, *, gamma: float | None = None) -> Schedule:
    """``lr`` times ``gamma`` at each step; by default down to a hundredth of ``lr`` after all of them.

    Raises ValueError unless gamma lies in (0, 1].
    """
    last = max(steps, 1)
    factor = 0.01 ** (1 / last) if gamma is None else gamma
    if not 0 < factor <= 1:
        raise ValueError(f"gamma must lie above 0 and up to 1, got {gamma}")
    return lambda t: lr * factor ** min(t, last)


class ReduceLROnPlateau(OwnState):
    """Lowers an optimizer's rate where a measure, such as the loss of an epoch, stops getting better.

    ``step(measure)`` is called after each epoch, on all ranks with the same measure, in a training without a
    schedule. Where more than ``patience`` measures in a row are not better than the best, the rate is
    multiplied by ``factor``, down to ``min_lr``, and ``cooldown`` measures are not counted. Better is less
    than best (1 - threshold), or than best - threshold with ``threshold_mode="abs"``; with ``mode="max"`` it
    is more, with the opposite sign. A rate that would fall by at most ``eps`` stays. All this is PyTorch's.
    Raises ValueError for settings out of range.

    ``fit(..., on_epoch=lambda epoch, history: plateau.step(history.losses[-1]))`` goes by the last loss of
    each epoch; where the losses of ranks differ, as in model averaging, take another measure. With
    ``schedule=plateau`` ``gather_state`` and ``load_state`` keep its state, and the rate, in a checkpoint.
    """

    own_state = ("best", "bad", "cooling")

    def __init__(
        self,
        optimizer: Optimizer,
        *,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: float = 0.0,
        eps: float = 1e-8,
    ):
        check_choice("mode", mode, ("min", "max"))
        check_choice("mode of the threshold", threshold_mode, ("rel", "abs"))
        if not 0 <= factor < 1:
            raise ValueError(f"factor must be at least 0 and below 1, got {factor}")
        self.optimizer, self.factor, self.patience, self.cooldown = optimizer, factor, patience, cooldown
        self.sign = 1 if mode == "min" else -1
        self.threshold, self.relative, self.min_lr, self.eps = threshold, threshold_mode == "rel", min_lr, eps
        self.best = self.sign * math.inf
        self.bad = self.cooling = 0  # measures in a row that were not better; measures that do not count

    def step(self, measure: float) -> None:
        """Take note of ``measure``, a number or a tensor of one, and lower the rate where it is time to."""
        measure = float(measure)
        step = self.sign * self.threshold
        limit = self.best * (1 - step) if self.relative else self.best - step
        if self.sign * measure < self.sign * limit:
            self.best, self.bad = measure, 0
        else:
            self.bad += 1
        if self.cooling:
            self.cooling, self.bad = self.cooling - 1, 0
        if self.bad > self.patience:
            self.cooling, self.bad = self.cooldown, 0
            lower = max(self.optimizer.lr * self.factor, self.min_lr)
            if self.optimizer.lr - lower > self.eps:
                self.optimizer.lr = lower

    def own_values(self) -> dict[str, Any]:
        return super().own_values() | {"lr": self.optimizer.lr}

    def set_own_values(self, values: dict[str, Any]) -> None:
        super().set_own_values(values)
        self.optimizer.lr = values["lr"]


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
    "exponential": exponential,
}


def find_schedule(name: str) -> Callable[[float, int], Schedule]:
    """The schedule called ``name``; raises ValueError naming the choices."""
    return lookup("schedule", name, SCHEDULES)
