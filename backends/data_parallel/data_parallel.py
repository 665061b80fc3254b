"""Every rank holds the whole model and a share of the batch; the gradients are summed.

Lecture section: synchronous data parallelism. Lesson: 06_data_parallel. One all-reduce of everything after
backward, on which the other synchronous forms build. ``naive.py`` is the slide itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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

SYNCHRONIZED = {"ranks": False, "synchronized": True}
"""Whether batch-norms use the statistics of all ranks, by the name of the setting."""


class DataParallel(Backend):
    """Synchronous data parallelism over ``comm``; trains like ``Serial`` for any shares, even empty ones.

    Each rank's loss is weighted by its share of the batch when backward starts, so the all-reduce only sums
    (CIS631's weighted average, exact for any shares). ``batch_norm`` is "ranks", where each rank uses its own
    statistics as in the lecture (a serial batch-norm over groups), or "synchronized", where all ranks use
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
        self.step_summary: StepSummary | None = None
        self.buckets: list[Bucket] = []  # from the first step on; the last one carries the summary too

    def place(self, model: Module) -> Module:
        """The whole model, with the parameters and state arrays of rank 0.

        Raises ValueError, naming both, where ranks built different models or chose different settings.
        """
        check_same_on_all_ranks(self.comm, model, self.settings())
        broadcast_model(self.comm, model)
        if self.batch_norm == "synchronized":
            synchronize_batch_norms(model, self.comm)
        self.step_summary = StepSummary(model, self.rank, self.size, statistics=self.batch_norm == "ranks")
        self.names: dict[Tensor, str] = {p: name for name, p in model.named_parameters().items()}
        self.buckets = []
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
        self.summary.count_backward(work.loss_weight)
        return super().forward_backward(work, inner)

    def finish(self, model: Module, loss: float) -> float:
        """Sum the gradients and the summary over all ranks.

        Each ``grad`` becomes a view of the sum, valid until the next backward.
        Raises RuntimeError, naming two ranks, where ranks ran backward a different number of times.
        """
        summary = self.summary
        if not self.buckets:
            self.buckets = [Bucket(summary.parameters, self.allocate_message())]
        for bucket in self.buckets:
            bucket.fill(bucket.missing)
        self.buckets[-1].message[-len(summary) :] = summary.pack(loss)
        sums = self.reduce()
        loss, flags = summary.unpack(sums[-1][-len(summary) :])
        reached = {p for p, flag in zip(summary.parameters, flags, strict=True) if flag}
        for bucket, total in zip(self.buckets, sums, strict=True):
            for parameter, g in zip(bucket.views, unflatten(total, bucket.views), strict=True):
                parameter.grad = g.astype(parameter.dtype, copy=False) if parameter in reached else None
            bucket.missing = set(bucket.views)
        return loss

    def reduce(self) -> list[Array]:
        """The sum of each bucket's message over all ranks: one all-reduce, as all gradients are in one."""
        return [self.allreduce(self.comm, bucket.message) for bucket in self.buckets]

    def allocate_message(self) -> Array:
        """Memory for the gradients and the summary, from the communicator where its all-reduce uses that."""
        parameters = self.summary.parameters
        xp = array_module(parameters[0].data)
        allocate = self.comm.array if xp is np else xp.zeros
        size = sum(p.size for p in parameters) + len(self.summary)
        return allocate(size, np.result_type(*(x.dtype for x in (*parameters, *self.summary.statistics()))))

    def close(self) -> None:
        """Free the message; gradients that are views of it are copied."""
        for parameter in [] if self.step_summary is None else self.step_summary.parameters:
            parameter.grad_buffer = None
            if parameter.grad is not None:
                parameter.grad = parameter.grad.copy()
        self.step_summary, self.buckets = None, []


class Bucket:
    """The gradients of some parameters, end to end in one ``message``, which may have more elements.

    ``missing`` are the parameters whose gradient of this step is not in it.
    """

    def __init__(self, parameters: Sequence[Tensor], message: Array):
        self.message = message
        self.views: dict[Any, Array] = dict(zip(parameters, unflatten(message, parameters), strict=True))
        self.missing = set(parameters)

    def fill(self, parameters: Iterable[Tensor]) -> None:
        """Copy gradients into the message, zeros for None; the next backward may write them there itself."""
        for parameter in list(parameters):
            view = self.views[parameter]
            if parameter.grad is None:
                view[...] = 0
            elif parameter.grad is not view:
                view[...] = parameter.grad
            parameter.grad_buffer = view
            self.missing.discard(parameter)


def synchronize_batch_norms(model: Module, comm: Communicator) -> None:
    """Let every batch-norm of ``model`` use the statistics of all ranks.

    Each adds an all-gather to a forward pass, of a count, the means and the squared deviations from them, and
    one to a backward pass. So all ranks must take part in every pass, also those without samples.
    """
    for _, owner, _ in model.named_arrays():
        if isinstance(owner, BatchNorm):
            owner.synchronize("data", partial(allgather, comm))
