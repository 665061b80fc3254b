"""Nobody needs to hold everything: each rank keeps a part of the optimizer's state, gradients and weights.

Lecture section: data lifetimes, synchronous data parallelism. Lesson: 06_data_parallel. The three stages of
ZeRO (Rajbhandari et al. 2019): an all-reduce is a reduce-scatter and an all-gather, and what happens between
the two needs only a part. For P float32 parameters on N ranks, with K bytes of optimizer state for each:

                 bytes on each rank        collectives in a step                              elements sent
    replicated   (8 + K) P                 all-reduce the gradients                           2 P (N - 1) / N
    stage 1      8 P + K P / N             reduce-scatter them, update, all-gather weights    2 P (N - 1) / N
    stage 2      4 P + (4 + K) P / N       the same, each gradient as soon as it is final     2 P (N - 1) / N
    stage 3      (8 + K) P / N             all-gather weights before each use, both ways      3 P (N - 1) / N
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from itertools import takewhile
from typing import Any

import numpy as np

from minigrad.backend import Gradients, Loss, at_least_one
from minigrad.data import Batch
from minigrad.device import Array, to_host
from minigrad.module import Module
from minigrad.optimizer import Optimizer
from minigrad.tape import OnGrad
from minigrad.tensor import Tensor

from ..comm.protocol import Comm
from .gathered import Lender, lend_to_layers
from .replicated import DataParallel
from .report import trained
from .unit import Starter, Unit, buckets, by_owner, not_a_number


class Sharded(DataParallel):
    """Data parallelism in which each rank owns an equal part of what is trained; ``stage`` says of what.

    1: of the optimizer's state; 2: of the gradients too; 3: of the weights too, which are whole only while a
    layer computes. Parameters travel in units: buckets of ``bucket_bytes``, in stage 3 what one module holds.
    Beside what the table says a rank holds padding, less than N elements for each unit; the frozen
    parameters; and, while a unit travels, that unit twice. The gradients of several ``micro_batches`` add up
    whole, and are reduced once.

    After ``step`` a parameter's ``grad`` reads NaN, and takes no memory: its owners hold the sum, which
    ``full_gradients`` collects. In stage 3 ``data`` reads NaN while no pass is in the module that holds
    the parameter, until ``conclude``; so only that module uses it, and every rank calls the same modules
    in the same order: without samples too, and also to evaluate. ``overlap`` moves the collectives into
    the background, and in stage 3 gathers one unit ahead.
    """

    flags = {}  # no all-reduce

    def __init__(
        self,
        comm: Comm,
        *,
        stage: int = 1,
        bucket_bytes: int = 1 << 20,
        overlap: bool = False,
        micro_batches: int = 1,
        batch_norm: str = "ranks",
    ):
        super().__init__(comm, micro_batches=micro_batches, batch_norm=batch_norm)
        if stage not in (1, 2, 3):
            raise ValueError(f"stage must be 1 (optimizer state), 2 (gradients) or 3 (weights), got {stage}")
        self.stage, self.overlap = stage, overlap
        self.lends_weights = stage == 3
        self.bucket_bytes = at_least_one("bucket_bytes", bucket_bytes)
        self.start = Starter(comm)
        self.units: list[Unit] = []
        self.waiting: list[Unit] = []  # not yet reduced in this step
        self.unit_of: dict[Tensor, Unit] = {}
        self.lender = Lender(ahead=overlap)
        self.layers: list[Module] = []

    def settings(self) -> dict[str, Any]:
        own = {"stage": self.stage, "bucket_bytes": self.bucket_bytes, "overlap": self.overlap}
        return {**super().settings(), **own}

    def place(self, model: Module) -> Module:
        """The model with rank 0's parameters, of which this rank keeps its part.

        Raises ValueError where ranks built different models or chose different settings.
        """
        model = super().place(model)
        lent = self.stage == 3
        groups = by_owner(model) if lent else buckets(trained(model), self.bucket_bytes)
        self.units = [Unit(group, self.comm, self.start, lent=lent) for group in groups]
        self.unit_of = {p: unit for unit in self.units for p in unit.parameters}
        self.names: dict[Tensor, str] = {p: name for name, p in model.named_parameters().items()}
        self.waiting = list(self.units)
        if lent:
            self.layers = lend_to_layers(model, self.unit_of, self.lender)
            self.meets_in_forward = True
        return model

    def set_aside(self, model: Module) -> Gradients:
        """This rank's elements of the sums that were not forgotten."""
        earlier = {p: unit.owned(p).copy() for p, unit in self.unit_of.items() if p.grad is not None}
        for parameter in earlier:
            parameter.grad = None
        return earlier

    def add(self, earlier: Gradients) -> None:
        for parameter, g in earlier.items():
            self.unit_of[parameter].owned(parameter)[...] += g
        self.mark(earlier)

    def mark(self, reached: Iterable[Tensor]) -> None:
        """Let parameters say that they have a gradient, which their owners hold."""
        for parameter in reached:
            self.unit_of[parameter].reached.add(parameter)
            parameter.grad = not_a_number(parameter.data)

    def run(self, model: Module, batch: Batch, loss_fn: Loss, weight: float, on_grad: OnGrad | None) -> float:
        if self.overlap and self.start.background is None:
            self.start.background = self.comm.background()
        for unit in self.units:
            unit.gradient = None  # that of the step before
        return super().run(model, batch, loss_fn, weight, on_grad)

    def on_grad(self, parameter: Tensor) -> None:
        """Reduce units as they become complete, in the same order on all ranks, whatever each one reached.

        Raises RuntimeError, naming the parameter, for a second announcement in one step.
        """
        unit = self.unit_of.get(parameter)
        if unit is None or self.stage == 1:
            return
        if parameter not in unit.missing:
            raise RuntimeError(
                f"rank {self.rank}: {self.names[parameter]} was announced twice in one step, and may be "
                "reduced already; to add up gradients use micro_batches, or stage=1"
            )
        unit.missing.remove(parameter)
        if self.stage == 3:  # all ranks go the same way: whoever completes a unit, all do
            complete = [] if unit.missing else [unit]
        else:
            complete = list(takewhile(lambda unit: not unit.missing, self.waiting))
        for unit in complete:
            self.waiting.remove(unit)
            unit.reduce()

    def finish(self, model: Module, loss: float) -> float:
        """Reduce what is left, then the report; each owner has its part of the gradients.

        Raises RuntimeError, naming two ranks, where ranks ran backward a different number of times.
        """
        for unit in self.waiting:
            unit.reduce()
        reached = {p for unit in self.units for p in unit.reached}
        total = self.sum(self.report.write(loss, self.share, self.backwards, reached))
        self.share, self.backwards, self.waiting = 0.0, 0, list(self.units)
        self.lender.end_step(self.units)
        for unit in self.units:
            unit.reduced()
        loss, flags = self.report.read(total)
        for unit in self.units:
            unit.reached = set()
        self.mark(p for p, flag in zip(self.report.parameters, flags, strict=True) if flag)
        return loss

    def update(self, model: Module, optimizer: Optimizer) -> None:
        """Each rank updates its parts, then what is whole is gathered anew; norms are summed over ranks."""
        numbers = {p: n for n, p in enumerate(optimizer.parameters)}
        optimizer.step(
            (part for unit in self.units for part in unit.parts(numbers)), partial(self.total, model)
        )
        whole = [unit for unit in self.units if unit.users]
        for unit in whole:
            unit.fetch()
        for unit in whole:
            unit.gather()

    def total(self, model: Module, squares: np.ndarray) -> np.ndarray:
        """Each rank knows those of its parts."""
        return self.sum(squares)

    def sum(self, x: Array) -> Array:
        """The sum of a small array over all ranks."""
        return self.start(lambda comm: self.allreduce(comm, x), "allreduce", x.nbytes)()

    def conclude(self, model: Module) -> None:
        """Gather everything for good."""
        self.keep()

    def keep(self) -> None:
        """Gather what is lent, for good, and end the background."""
        for layer in self.layers:
            del layer.forward  # the shadow: the class's own shows again
        self.layers = []
        for unit in self.units:
            if not unit.users:
                unit.keep()
        self.start.close()

    def close(self) -> None:
        """Give back the units and the background; weights that are lent become whole, as in ``conclude``."""
        self.keep()
        super().close()
        self.units, self.unit_of, self.waiting, self.lender = [], {}, [], Lender(ahead=self.overlap)

    def full_parameters(self, model: Module) -> dict[str, np.ndarray]:
        """What the serial run would hold, by name; all ranks call."""
        values = {}
        for unit in self.units:
            unit.open()
            values.update((p, to_host(p.data).copy()) for p in unit.parameters)
            unit.close()
        return {n: values[p] if p in values else to_host(p.data) for n, p in model.named_parameters().items()}

    def full_gradients(self, model: Module) -> dict[str, np.ndarray | None]:
        """The gradients the serial run would hold, by name; all ranks call."""
        grads = {}
        for unit in self.units:
            found = zip(unit.parameters, unit.full_gradients(), strict=True)
            grads.update((p, to_host(g)) for p, g in found if p in unit.reached)
        return {name: grads.get(p) for name, p in model.named_parameters().items()}
