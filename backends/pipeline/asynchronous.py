"""A pipeline that never empties: each rank takes a new batch forward, then an older one back, all the time.

Lecture section: pipelining. Lesson: 13_pipeline. Nobody waits for a batch to come back before the next goes
forward, so there is no bubble, and gradients are those of older weights. What matters is which: a micro-batch
must go back with the weights it went forward with, or what is computed is the gradient of nothing.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from minigrad.backend import Backend, ForwardBackward, SquareNorms, Work, forward_backward_pass
from minigrad.declaration import Flag
from minigrad.lookup import lookup
from minigrad.module import Module
from minigrad.optim import Optimizer

from ..comm.communicator import Communicator
from ..consistency import check_same_on_all_ranks
from ..stale_rates import STALE_RATES, find_stale_rate
from .flight import Flight, Gradient
from .layer_wise import LayerWise, Stage
from .weight_stash import WeightStash


class Rule(NamedTuple):
    """Which weights a batch meets on its way, and when its gradient is applied."""

    copies: bool = True  # the weights that a forward saw are kept for its backward
    vertical: bool = False  # a batch meets the same version on all stages
    same_step: bool = False  # all stages apply a batch's gradient at the end of the same step


RULES = {
    "stashing": Rule(),
    "vertical": Rule(vertical=True),
    "2bw": Rule(same_step=True),
    "no_stash": Rule(copies=False),
}


class AsynchronousPipeline(LayerWise):
    """Consecutive layers on p consecutive ranks, without a flush; not equal to ``Serial`` for p > 1.

    In a step stage s takes one batch forward, and after each micro-batch of it an older one back, of which
    p - 1 - s stay in flight. ``versions`` says with which weights; w_s^t are stage s's after t updates, for
    t < 0 the first:

    - "stashing": batch t's gradient is that at w_0^(t-p+1), ..., w_(p-1)^t, applied to w^t. Stage s holds
      p - s versions (PipeDream, Narayanan et al. 2019).
    - "vertical": the same with w^(t-p+1) on all stages, PipeDream's vertical sync. Each holds p versions.
    - "2bw": batch t's gradient is that at w^(t-1), the sum over p ``micro_batches`` or more. Each stage holds
      2 versions, the last one 1 (PipeDream-2BW, Narayanan et al. 2021).
    - "no_stash": with the weights that the stage holds when a micro-batch goes back: the gradient of nothing.
      To see that it fails.

    ``micro_batches`` is p by default for "2bw"; the others update after every batch, and take 1. An update
    has the learning rate of the step it is made in, which ``stale_rate`` multiplies where the gradient is
    tau updates old: "damped" by 1 / (1 + tau), "divided" by 1 / tau if tau is above 0, "naive" by 1. The
    reason is in ``stale_rates``; Yang et al. 2021 divide the rates of stages so. With three or more stages
    that does not make up for all: expect to lose some accuracy in few epochs, or take ``Pipeline``.

    ``staleness`` counts the gradients applied on this rank by the updates since their forward;
    ``versions_held`` is the largest number of versions there was. One rank has nobody to wait for, and trains
    like ``Serial``. Raises ValueError for settings that do not fit.
    """

    equals_serial = False
    outermost_only = True
    flags = {
        "versions": Flag(str, "weights that a batch uses (default: stashing)", "NAME", lambda: RULES),
        "stale_rate": Flag(
            str,
            "effect of staleness on the learning rate (default: damped)",
            "NAME",
            lambda: STALE_RATES,
        ),
    }

    def __init__(
        self,
        comm: Communicator,
        bounds: Sequence[int] | None = None,
        *,
        versions: str = "stashing",
        stale_rate: str = "damped",
        micro_batches: int | None = None,
    ):
        self.versions, self.rule = versions, lookup("versions", versions, RULES)
        self.stale_rate, self.factor = stale_rate, find_stale_rate(stale_rate)
        needed = comm.size if self.rule.same_step else 1
        super().__init__(comm, bounds, micro_batches=needed if micro_batches is None else micro_batches)
        if self.micro_batches < needed:
            raise ValueError(
                f"{versions} on {comm.size} ranks needs at least {needed} micro-batches, for a batch to be "
                f"back one step later, got {micro_batches}; pass micro_batches={needed} or more"
            )
        if self.micro_batches > 1 and not self.rule.same_step:
            raise ValueError(
                f"{versions} updates after every batch, taken as a whole, got micro_batches={micro_batches}; "
                "take smaller batches, or versions='2bw'"
            )
        last = comm.size - 1
        self.behind = last - comm.rank  # micro-batches
        self.late = -(-last // self.micro_batches)  # steps until all stages have a batch's gradient
        self.delay = self.late if self.rule.same_step else self.behind  # steps until this one applies it
        self.staleness: Counter[int] = Counter()
        self.versions_held = 1
        self.flight: Flight | None = None
        self.ready: Gradient | None = None
        self.optimizer: Optimizer | None = None

    def place(self, model: Module) -> Module:
        check_same_on_all_ranks(self.comm, model, {"versions": self.versions, "stale_rate": self.stale_rate})
        return super().place(model)

    def forward_backward(self, work: Work, inner: ForwardBackward = forward_backward_pass) -> float:
        """Take the batch forward, and back what is due; leave in ``grad`` what ``update`` is to apply now.

        Returns, on all ranks, the loss of the batch ``late`` steps ago: p - 1, for 2bw at most 1. The first
        steps return that of the first batch, for which all wait once; no step returns those of the last
        batches. No gradients are announced. Raises RuntimeError for a second step without an update.
        """
        if self.ready is not None:
            raise RuntimeError(
                "the gradient of the step before was not applied, and stages count on an update in every "
                "step; call backend.update(model, optimizer) after each, or accumulate gradients with "
                "versions='2bw' and micro_batches="
            )
        flight = self.flight = self.flight or self.begin(work.model)
        parts = list(work.split(self.micro_batches).values())
        coming = [flight.post(part.batch) for part in parts]
        loss = 0.0
        for part, receive in zip(parts, coming, strict=True):
            loss += flight.forward(part, receive)
            if len(flight.in_flight) > self.behind:
                flight.backward()
        self.ready = flight.take_back(flight.step - self.delay)
        flight.end_step(loss)
        loss = flight.loss(max(flight.step - 1 - self.late, 0))
        if not math.isfinite(loss):  # all ranks see it in the same step, and end here
            self.end()
        return loss

    def finish(self, model: Module, loss: float) -> float:
        return loss

    def update(self, model: Module, optimizer: Optimizer, square_norms: SquareNorms | None = None) -> None:
        """Apply the gradient that is due; change nothing while there is none yet.

        Raises ValueError for clipping by the joint norm where stages apply different batches' gradients.
        """
        if optimizer.limit is not None and self.size > 1 and not self.rule.same_step:
            raise ValueError(
                f"{self.versions} applies a batch's gradient stage by stage, at different times, so its "
                "joint norm is not known; train without clipping, or take versions='2bw'"
            )
        self.optimizer = optimizer
        if self.flight is None or self.ready is None:
            return
        stash = self.flight.stash
        age = stash.newest.updates - self.ready.updates
        self.staleness[age] += 1
        stash.advance()
        self.versions_held = max(self.versions_held, stash.n_versions)
        lr, optimizer.lr = optimizer.lr, optimizer.lr * self.factor(age, 1.0, optimizer.adaptive)
        with np.errstate(over="ignore", invalid="ignore"):  # the loss that tells of it is on its way
            super().update(model, optimizer, square_norms)
        optimizer.lr = lr
        self.ready = None

    def global_square_norms(self, model: Module, squares: np.ndarray) -> np.ndarray:
        """All stages' sums where they apply the same batch's gradient at the same time, else this one's."""
        return super().global_square_norms(model, squares) if self.rule.same_step else squares

    def finalize(self, model: Module) -> None:
        """Take back and apply what is in flight, with the last update's optimizer.

        Raises FloatingPointError, on all ranks, where a loss that no step returned is not finite.
        """
        if self.flight is None:
            return
        steps = self.flight.step
        for batch in range(max(steps - self.delay, 0), steps):
            self.ready = self.flight.take_back(batch)
            if self.optimizer is not None:
                self.update(model, self.optimizer)
        for step, loss in enumerate(self.end()):
            if not math.isfinite(loss):
                raise FloatingPointError(f"the loss is {loss} at step {step}; try a smaller --lr")

    def close(self) -> None:
        """Drop what is in flight, unless ``finalize`` has applied it."""
        self.end()

    def begin(self, model: Module) -> Flight:
        """Nothing is in flight, and all stages have the weights that they hold now."""
        assert isinstance(model, Stage)
        behind = self.rank if self.rule.vertical else 0
        stash = WeightStash(model.parameters(), delay=behind, copies=self.rule.copies)
        return Flight(self.comm, model.model, stash, self.late)

    def end(self) -> list[float]:
        """Let nothing be in flight any more; the losses of all batches."""
        flight, self.flight, self.ready, self.optimizer = self.flight, None, None, None
        return [] if flight is None else flight.drain()

    def refusal(self, inner: Backend) -> str:
        applies = (
            "an AsynchronousPipeline applies gradients as its stages find them, which a strategy inside "
            "of it may have to finish; let it stand alone, or stack LayerWise or Pipeline instead"
        )
        return super().refusal(inner) or applies
