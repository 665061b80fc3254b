"""Every rank holds the whole model and a share of the batch; the gradients are summed.

Lecture section: synchronous data parallelism. Lesson: 06_data_parallel. One all-reduce of everything after
backward, on which the other forms with an all-reduce build. ``naive.py`` is the slide itself.
"""

from __future__ import annotations

import numpy as np

from minigrad.device import Array, array_module, unflatten
from minigrad.module import Module
from minigrad.tensor import Tensor

from ..comm.collectives import Allreduce, allreduce
from ..comm.communicator import Communicator
from .allreduce_choice import AllreduceChoice, prepare_allreduce
from .bucket import Bucket, make_buckets
from .synchronous import SynchronousDataParallel


class DataParallel(SynchronousDataParallel):
    """Synchronous data parallelism over ``comm``; trains like ``Serial`` for any shares, even empty ones."""

    declaration = AllreduceChoice()

    def __init__(
        self,
        comm: Communicator,
        allreduce: Allreduce = allreduce,
        *,
        micro_batches: int = 1,
        batch_norm: str = "ranks",
    ):
        super().__init__(comm, micro_batches=micro_batches, batch_norm=batch_norm)
        self.allreduce = allreduce
        self.buckets: list[Bucket] = []  # from the first step on; the last one carries the summary too

    def place(self, model: Module) -> Module:
        """The whole model, with the parameters and state arrays of rank 0."""
        self.buckets = []
        model = super().place(model)
        prepare_allreduce(self.allreduce, self.comm)
        return model

    def finish(self, model: Module, loss: float) -> float:
        """Sum the gradients and the summary; each ``grad`` is a view of the sum, until the next backward.

        Raises RuntimeError, naming two ranks, where ranks ran backward a different number of times.
        """
        summary = self.summary
        if not self.buckets:
            of_dtypes: dict[np.dtype, list[Tensor]] = {}
            for parameter in summary.parameters:
                of_dtypes.setdefault(parameter.dtype, []).append(parameter)
            groups = sorted(of_dtypes.values(), key=lambda group: group[0].dtype == summary.dtype)
            self.buckets = make_buckets(groups, summary, self.allocate_message)
        for bucket in self.buckets:
            bucket.fill(bucket.missing)
        self.buckets[-1].message[-len(summary) :] = summary.pack(loss)
        sums = self.reduce()
        loss, flags = summary.unpack(sums[-1][-len(summary) :])
        reached = {p for p, flag in zip(summary.parameters, flags, strict=True) if flag}
        for bucket, total in zip(self.buckets, sums, strict=True):
            for parameter, g in zip(bucket.views, unflatten(total, bucket.views), strict=True):
                parameter.grad = g if parameter in reached else None
            bucket.missing = set(bucket.views)
        return loss

    def reduce(self) -> list[Array]:
        """The sum of each bucket's message over all ranks: one all-reduce for each dtype."""
        return [self.allreduce(self.comm, bucket.message) for bucket in self.buckets]

    def allocate_message(self, size: int, dtype: np.dtype) -> Array:
        """Memory of zeros, from the communicator where its all-reduce uses that."""
        xp = array_module(self.summary.parameters[0].data)
        return (self.comm.array if xp is np else xp.zeros)(size, dtype)

    def close(self) -> None:
        """Free the message; gradients that are views of it are copied."""
        super().close()
        self.buckets = []
