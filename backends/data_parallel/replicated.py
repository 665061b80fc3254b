"""Every rank holds the whole model and a share of the batch; the gradients are summed.

Lecture section: synchronous data parallelism. Lesson: 06_data_parallel. The naive form, and the reference of
the others: one all-reduce of everything after backward.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from minigrad.backend import Backend, Gradients, Loss, at_least_one, taken_from
from minigrad.data import Batch, shares
from minigrad.device import Array, array_module
from minigrad.module import Module
from minigrad.tape import OnGrad

from ..comm.collectives import allreduce
from ..comm.protocol import Comm
from ..consistency import broadcast_model, check_same_on_all_ranks
from .batch_norm import check_batch_norm, synchronise
from .report import Report


class DataParallel(Backend):
    """Synchronous data parallelism over ``comm``; trains like ``Serial`` for any shares, even empty ones.

    The mean goes in when backward starts: each rank's loss is weighted by its share of the batch, so
    the all-reduce only sums (CIS631's weighted average, exact for any shares). ``batch_norm`` is "ranks",
    each rank's own statistics as in the lecture (a serial batch-norm over groups), or "synchronised",
    those of the whole batch.
    """

    def __init__(
        self,
        comm: Comm,
        allreduce: Callable[[Comm, Array], Array] = allreduce,
        *,
        micro_batches: int = 1,
        batch_norm: str = "ranks",
    ):
        self.comm, self.allreduce = comm, allreduce
        self.rank, self.size = comm.rank, comm.size
        self.micro_batches = at_least_one("micro_batches", micro_batches)
        self.batch_norm = check_batch_norm(batch_norm)
        self.share, self.backwards = 0.0, 0  # since the last reduction
        self.placed: Report | None = None
        self.message: Any = None  # from the first step on
        self.places: list[Array] = []  # of the gradients and the report in it

    def settings(self) -> dict[str, Any]:
        """What must be the same on all ranks."""
        return {"micro_batches": self.micro_batches, "batch_norm": self.batch_norm}

    def place(self, model: Module) -> Module:
        """The whole model, with rank 0's parameters and state arrays.

        Raises ValueError, naming both, where ranks built different models or chose different settings.
        """
        check_same_on_all_ranks(self.comm, model, self.settings())
        broadcast_model(self.comm, model)
        if self.batch_norm == "synchronised":
            self.meets_in_forward = synchronise(model, self.comm)
        self.placed = Report(model, self.rank, self.size, statistics=self.batch_norm == "ranks")
        self.places, self.message = [], None
        return model

    @property
    def report(self) -> Report:
        if self.placed is None:
            raise RuntimeError("this backend has no model yet; call model = backend.place(model) first")
        return self.placed

    def shard(self, batch: Batch) -> Batch:
        """The rank-th of ``size`` consecutive shares, whose sizes differ by at most one."""
        return batch[shares(len(batch), self.size)[self.rank]]

    def set_aside(self, model: Module) -> Gradients:
        return taken_from(self.report.parameters)

    def run(self, model: Module, batch: Batch, loss_fn: Loss, weight: float, on_grad: OnGrad | None) -> float:
        self.report.refuse_thawed()
        self.share += weight
        self.backwards += 1
        return super().run(model, batch, loss_fn, weight, on_grad)

    def finish(self, model: Module, loss: float) -> float:
        """Sum the gradients, and what the report holds, over all ranks in one all-reduce.

        Each ``grad`` becomes a view of the sum, good until the next backward.
        Raises RuntimeError, naming two ranks, where ranks ran backward a different number of times.
        """
        if not self.places:
            self.message = self.room()
            self.places = self.cut(self.message)
        *places, report = self.places
        self.bring(places)
        report[...] = self.written(loss)
        *sums, report = self.cut(self.allreduce(self.comm, self.message))
        loss, reached = self.report.read(report)
        for parameter, g, found in zip(self.report.parameters, sums, reached, strict=True):
            parameter.grad = g.astype(parameter.dtype, copy=False) if found else None
        return loss

    def bring(self, places: list[Array]) -> None:
        """Copy each gradient to its place, and lend that to the parameter: the next may be computed there."""
        for parameter, place in zip(self.report.parameters, places, strict=True):
            if parameter.grad is None:
                place[...] = 0
            elif parameter.grad is not place:
                place[...] = parameter.grad
            parameter.buffer = place

    def written(self, loss: float) -> Array:
        """This rank's report on the step."""
        share, backwards, self.share, self.backwards = self.share, self.backwards, 0.0, 0
        return self.report.write(loss, share, backwards)

    def room(self) -> Array:
        """Memory for the gradients and the report, end to end, where the all-reduce sums best."""
        parameters = self.report.parameters
        make = array_module(parameters[0].data).zeros
        if make is np.zeros:
            make = getattr(self.allreduce, "array", None) or getattr(self.comm, "array", make)
        size = sum(p.size for p in parameters) + len(self.report)
        return make(size, np.result_type(*(x.dtype for x in (*parameters, *self.report.statistics()))))

    def close(self) -> None:
        """Give back the message; what gradients are in it are copied."""
        for parameter in [] if self.placed is None else self.placed.parameters:
            parameter.buffer = None
            if parameter.grad is not None:
                parameter.grad = parameter.grad.copy()
        self.placed, self.places, self.message = None, [], None

    def cut(self, message: Array) -> list[Array]:
        """The gradients in their parameters' shapes, and the report, as views of ``message``."""
        views, start = [], 0
        for parameter in self.report.parameters:
            views.append(message[start : start + parameter.size].reshape(parameter.shape))
            start += parameter.size
        return [*views, message[start:]]
