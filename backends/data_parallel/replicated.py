"""Every rank holds the whole model and a share of the batch; the gradients are summed.

Lecture section: synchronous data parallelism. Lesson: 06_data_parallel. The reference of the other
forms: one all-reduce of everything after backward. ``naive.py`` is the slide itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, ClassVar

import numpy as np

from minigrad.backend import Backend, ForwardBackward, Work, accumulated, at_least_one, forward_backward_pass
from minigrad.data import Batch, shares
from minigrad.declaration import Flag
from minigrad.device import Array, array_module
from minigrad.module import Module

from ..comm.collectives import allreduce, allreduce_names, find_allreduce
from ..comm.communicator import Communicator
from ..consistency import broadcast_model, check_same_on_all_ranks
from .batch_norm import check_batch_norm, synchronise
from .step_summary import StepSummary

ALLREDUCE = Flag(
    str, "algorithm of the all-reduce (default: the transport's own)", "NAME", allreduce_names, find_allreduce
)


class DataParallel(Backend):
    """Synchronous data parallelism over ``comm``; trains like ``Serial`` for any shares, even empty ones.

    The mean goes in when backward starts: each rank's loss is weighted by its share of the batch, so
    the all-reduce only sums (CIS631's weighted average, exact for any shares). ``batch_norm`` is "ranks",
    each rank's own statistics as in the lecture (a serial batch-norm over groups), or "synchronised",
    those of the whole batch.
    """

    flags: ClassVar[Mapping[str, Flag]] = {"allreduce": ALLREDUCE}

    def __init__(
        self,
        comm: Communicator,
        allreduce: Callable[[Communicator, Array], Array] = allreduce,
        *,
        micro_batches: int = 1,
        batch_norm: str = "ranks",
    ):
        self.comm, self.allreduce = comm, allreduce
        self.rank, self.size = comm.rank, comm.size
        self.micro_batches = at_least_one("micro_batches", micro_batches)
        self.batch_norm = check_batch_norm(batch_norm)
        self.communicates_in_forward = batch_norm == "synchronised"
        self.batch_fraction, self.n_backwards = 0.0, 0  # since the last reduction
        self.placed: StepSummary | None = None
        self.message: Any = None  # from the first step on
        self.places: list[Array] = []  # of the gradients and the summary in it

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
            synchronise(model, self.comm)
        self.placed = StepSummary(model, self.rank, self.size, statistics=self.batch_norm == "ranks")
        self.places, self.message = [], None
        return model

    @property
    def summary(self) -> StepSummary:
        if self.placed is None:
            raise RuntimeError("this backend has no model yet; call model = backend.place(model) first")
        return self.placed

    def shard(self, batch: Batch) -> Batch:
        """The rank-th of ``size`` consecutive shares, whose sizes differ by at most one."""
        return batch[shares(len(batch), self.size)[self.rank]]

    def accumulate(self, model: Module) -> AbstractContextManager[Any]:
        return accumulated(self.summary.parameters)

    def forward_backward(self, work: Work, inner: ForwardBackward = forward_backward_pass) -> float:
        self.summary.refuse_thawed()
        self.batch_fraction += work.loss_weight
        self.n_backwards += 1
        return super().forward_backward(work, inner)

    def finish(self, model: Module, loss: float) -> float:
        """Sum the gradients, and what the summary holds, over all ranks in one all-reduce.

        Each ``grad`` becomes a view of the sum, good until the next backward.
        Raises RuntimeError, naming two ranks, where ranks ran backward a different number of times.
        """
        if not self.places:
            self.message = self.allocate_message()
            self.places = self.views_of(self.message)
        *places, summary = self.places
        self.copy_gradients_in(places)
        summary[...] = self.pack_summary(loss)
        *sums, summary = self.views_of(self.allreduce(self.comm, self.message))
        loss, reached = self.summary.unpack(summary)
        for parameter, g, found in zip(self.summary.parameters, sums, reached, strict=True):
            parameter.grad = g.astype(parameter.dtype, copy=False) if found else None
        return loss

    def copy_gradients_in(self, places: list[Array]) -> None:
        """Copy each gradient to its place, and lend that to the parameter: the next may be computed there."""
        for parameter, place in zip(self.summary.parameters, places, strict=True):
            if parameter.grad is None:
                place[...] = 0
            elif parameter.grad is not place:
                place[...] = parameter.grad
            parameter.grad_buffer = place

    def pack_summary(self, loss: float) -> Array:
        """This rank's summary of the step."""
        packed = self.summary.pack(loss, self.batch_fraction, self.n_backwards)
        self.batch_fraction, self.n_backwards = 0.0, 0
        return packed

    def allocate_message(self) -> Array:
        """Memory for the gradients and the summary, end to end, where the all-reduce sums best."""
        parameters = self.summary.parameters
        xp = array_module(parameters[0].data)
        make = self.comm.array if xp is np else xp.zeros
        size = sum(p.size for p in parameters) + len(self.summary)
        return make(size, np.result_type(*(x.dtype for x in (*parameters, *self.summary.statistics()))))

    def close(self) -> None:
        """Give back the message; what gradients are in it are copied."""
        for parameter in [] if self.placed is None else self.placed.parameters:
            parameter.grad_buffer = None
            if parameter.grad is not None:
                parameter.grad = parameter.grad.copy()
        self.placed, self.places, self.message = None, [], None

    def views_of(self, message: Array) -> list[Array]:
        """The gradients in their parameters' shapes, and the summary, as views of ``message``."""
        views, start = [], 0
        for parameter in self.summary.parameters:
            views.append(message[start : start + parameter.size].reshape(parameter.shape))
            start += parameter.size
        return [*views, message[start:]]
