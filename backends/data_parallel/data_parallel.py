"""Every rank holds the whole model and a share of the batch; the gradients are summed.

Lecture section: synchronous data parallelism. Lesson: 06_data_parallel. One all-reduce of everything after
backward, on which the other synchronous forms build. ``naive.py`` is the slide itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, ClassVar

import numpy as np

from minigrad.backend import Backend, ForwardBackward, Work, accumulated, at_least_one, forward_backward_pass
from minigrad.data import Batch, shares
from minigrad.declaration import Flag
from minigrad.device import Array, array_module, unflatten
from minigrad.lookup import lookup
from minigrad.module import Module
from minigrad.nn import BatchNorm
from minigrad.tensor import Tensor

from ..comm.collectives import ALLREDUCE, Allreduce, allgather, allreduce
from ..comm.communicator import Communicator
from ..consistency import broadcast_model, check_same_on_all_ranks
from .step_summary import StepSummary

SYNCHRONIZED = {"ranks": False, "synchronised": True}
"""Whether batch-norms use the statistics of all ranks, by the name of the setting."""


class DataParallel(Backend):
    """Synchronous data parallelism over ``comm``; trains like ``Serial`` for any shares, even empty ones.

    Each rank's loss is weighted by its share of the batch when backward starts, so the all-reduce only sums
    (CIS631's weighted average, exact for any shares). ``batch_norm`` is "ranks", where each rank uses its own
    statistics as in the lecture (a serial batch-norm over groups), or "synchronised", where all ranks use
    those of the whole batch.
    """

    flags: ClassVar[Mapping[str, Flag]] = {"allreduce": ALLREDUCE}

    def __init__(
        self,
        comm: Communicator,
        allreduce: Allreduce = allreduce,
        *,
        micro_batches: int = 1,
        batch_norm: str = "ranks",
    ):
        self.comm, self.allreduce = comm, allreduce
        self.rank, self.size = comm.rank, comm.size
        self.micro_batches = at_least_one("micro_batches", micro_batches)
        self.batch_norm = batch_norm
        self.communicates_in_forward = lookup("batch_norm", batch_norm, SYNCHRONIZED)
        self.batch_fraction, self.n_backwards = 0.0, 0  # since the last reduction
        self.step_summary: StepSummary | None = None
        self.message: Any = None  # from the first step on: the gradients, then the summary
        self.message_views: list[Array] = []

    def place(self, model: Module) -> Module:
        """The whole model, with the parameters and state arrays of rank 0.

        Raises ValueError, naming both, where ranks built different models or chose different settings.
        """
        check_same_on_all_ranks(self.comm, model, self.settings())
        broadcast_model(self.comm, model)
        if self.batch_norm == "synchronised":
            synchronize_batch_norms(model, self.comm)
        self.step_summary = StepSummary(model, self.rank, self.size, statistics=self.batch_norm == "ranks")
        self.message_views, self.message = [], None
        return model

    @property
    def summary(self) -> StepSummary:
        if self.step_summary is None:
            raise RuntimeError("this backend has no model yet; call model = backend.place(model) first")
        return self.step_summary

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
        """Sum the gradients and the summary over all ranks in one all-reduce.

        Each ``grad`` becomes a view of the sum, valid until the next backward.
        Raises RuntimeError, naming two ranks, where ranks ran backward a different number of times.
        """
        if not self.message_views:
            self.message = self.allocate_message()
            self.message_views = self.views_of(self.message)
        *views, summary = self.message_views
        self.copy_gradients_in(views)
        summary[...] = self.pack_summary(loss)
        *sums, summary = self.views_of(self.allreduce(self.comm, self.message))
        loss, flags = self.summary.unpack(summary)
        for parameter, g, reached in zip(self.summary.parameters, sums, flags, strict=True):
            parameter.grad = g.astype(parameter.dtype, copy=False) if reached else None
        return loss

    def copy_gradients_in(self, views: list[Array]) -> None:
        """Copy each gradient into its view, and let the next backward write it there directly."""
        for parameter, view in zip(self.summary.parameters, views, strict=True):
            copy_gradient(parameter, view)

    def pack_summary(self, loss: float) -> Array:
        """This rank's summary of the step."""
        summary = self.summary.pack(loss, self.batch_fraction, self.n_backwards)
        self.batch_fraction, self.n_backwards = 0.0, 0
        return summary

    def allocate_message(self) -> Array:
        """Memory for the gradients and the summary, from the communicator where its all-reduce uses that."""
        parameters = self.summary.parameters
        xp = array_module(parameters[0].data)
        allocate = self.comm.array if xp is np else xp.zeros
        size = sum(p.size for p in parameters) + len(self.summary)
        return allocate(size, np.result_type(*(x.dtype for x in (*parameters, *self.summary.statistics()))))

    def views_of(self, message: Array) -> list[Array]:
        """The gradients in the shapes of their parameters, and the summary, as views of ``message``."""
        views = unflatten(message, self.summary.parameters)
        return [*views, message[sum(view.size for view in views) :]]

    def close(self) -> None:
        """Free the message; gradients that are views of it are copied."""
        for parameter in [] if self.step_summary is None else self.step_summary.parameters:
            parameter.grad_buffer = None
            if parameter.grad is not None:
                parameter.grad = parameter.grad.copy()
        self.step_summary, self.message_views, self.message = None, [], None


def copy_gradient(parameter: Tensor, view: Array) -> None:
    """Copy the gradient into ``view``, zeros for None, and let the next backward write it there directly."""
    if parameter.grad is None:
        view[...] = 0
    elif parameter.grad is not view:
        view[...] = parameter.grad
    parameter.grad_buffer = view


def synchronize_batch_norms(model: Module, comm: Communicator) -> None:
    """Let every batch-norm of ``model`` use the statistics of all ranks.

    Each adds an all-gather to a forward pass, of a count, the means and the squared deviations from them, and
    one to a backward pass. So all ranks must take part in every pass, also those without samples.
    """
    for _, owner, _ in model.named_arrays():
        if isinstance(owner, BatchNorm):
            owner.synchronize("data", partial(allgather, comm))
