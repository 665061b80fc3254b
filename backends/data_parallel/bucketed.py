"""While backward computes the gradients of one layer, those of the layers behind it are already being summed.

Lecture section: synchronous data parallelism (reduction of layer i during back-propagation of layer i - 1).
Lesson: 06_data_parallel. As PyTorch's DistributedDataParallel does it (Li et al. 2020, arXiv 2006.15704).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np

from minigrad.backend import at_least_one
from minigrad.device import Array, array_module
from minigrad.lookup import lookup
from minigrad.module import Module
from minigrad.tensor import Parameter, Tensor

from ..comm import collectives
from ..comm.communicator import Communicator
from .flat import FlatLayout, buckets
from .replicated import DataParallel

Allreduce = Callable[[Communicator, Array], Array]
Start = Callable[[Array], Callable[[], Array]]
"""Starts to sum an array over all ranks; call what is returned for the sum."""


class Sums(NamedTuple):
    """How buckets are summed: started, looked at whenever a gradient is final, and no more."""

    start: Start
    look: Callable[[], object]
    close: Callable[[], object]


class Bucketed(DataParallel):
    """``DataParallel`` whose gradients travel in buckets, each sent as soon as backward has filled it.

    Parameters fill buckets of at most ``bucket_bytes`` (or one that is larger) in reverse order of
    registration, which is about the order in which backward reaches them; the first has
    ``first_bucket_bytes``, so that communication begins early. (PyTorch has 25 MiB and 1 MiB, for larger
    nets.) The last carries the summary, so it waits for the end of backward: there is one message a bucket,
    and one bucket overlaps with nothing. Buckets start in their own order on every rank, whatever order
    their gradients came in.

    ``progress`` says who sees to a sum while the rank computes. "thread": the background. "test": the rank,
    which starts MPI's all-reduce and looks at it whenever a gradient is final. "none": nobody; it waits
    for ``finish``, unless MPI has a progress thread (MPICH: MPIR_CVAR_ASYNC_PROGRESS=1). "blocking": the
    rank, which does nothing else until it is there. "test" and "none" do all of a sum in ``finish`` if
    ``allreduce`` is given, or if the transport has no all-reduce that can be started.
    """

    def __init__(
        self,
        comm: Communicator,
        allreduce: Allreduce | None = None,
        *,
        bucket_bytes: int = 1 << 18,
        first_bucket_bytes: int = 1 << 16,
        progress: str = "thread",
        micro_batches: int = 1,
        batch_norm: str = "ranks",
    ):
        super().__init__(
            comm, allreduce or collectives.allreduce, micro_batches=micro_batches, batch_norm=batch_norm
        )
        self.progress, self.algorithm = progress, allreduce
        self.open_sums = lookup("progress", progress, PROGRESS)
        self.bucket_bytes = at_least_one("bucket_bytes", bucket_bytes)
        self.first_bucket_bytes = at_least_one("first_bucket_bytes", first_bucket_bytes)
        self.sums: Sums | None = None  # opened once, by all ranks together
        self.buckets: list[Bucket] = []
        self.bucket_of: dict[Tensor, Bucket] = {}
        self.waiting: deque[Bucket] = deque()  # not yet started in this step

    def settings(self) -> dict[str, Any]:
        sizes = {"bucket_bytes": self.bucket_bytes, "first_bucket_bytes": self.first_bucket_bytes}
        return {**super().settings(), **sizes, "progress": self.progress}

    def place(self, model: Module) -> Module:
        """The whole model, with rank 0's parameters and state arrays.

        Raises ValueError where ranks built different models or chose different settings, and where a bucket
        would hold parameters of several dtypes.
        """
        model = super().place(model)
        *groups, last = buckets(self.summary.parameters, self.bucket_bytes, self.first_bucket_bytes)
        self.buckets = [*(Bucket(group) for group in groups), Bucket(last, len(self.summary))]
        self.bucket_of = {p: b for b in self.buckets for p in b.places}
        self.names: dict[Tensor, str] = {p: name for name, p in model.named_parameters().items()}
        self.waiting = deque(self.buckets)
        if self.sums is None:
            self.sums = self.open_sums(self.comm, self.algorithm)
        self.start, self.look, _ = self.sums
        return model

    def on_grad(self, parameter: Tensor) -> None:
        """Put the gradient into its bucket, and start all buckets that are complete and whose turn it is.

        Raises RuntimeError, naming the parameter, for a second announcement in one step.
        """
        bucket = self.bucket_of.get(parameter)
        if bucket is None:  # frozen, or not the model's
            return
        if parameter not in bucket.missing:
            raise RuntimeError(
                f"rank {self.rank}: {self.names[parameter]} was announced twice in one step, and its bucket "
                "may be on its way; use micro_batches, or pass on_grad only to the last backward of a step"
            )
        bucket.fill(parameter)
        while len(self.waiting) > 1 and not self.waiting[0].missing:
            self.send(self.waiting.popleft())
        self.look()

    def send(self, bucket: Bucket) -> None:
        bucket.summed = self.start(bucket.message)

    def finish(self, model: Module, loss: float) -> float:
        """Start what is left, and the summary with it, and wait for all.

        Each ``grad`` becomes a view of its bucket's sum, good until the next backward. Raises RuntimeError,
        naming two ranks, where ranks ran backward a different number of times.
        """
        summary, parameters = self.summary, self.summary.parameters
        for bucket in self.waiting:
            for parameter in [p for p in bucket.places if p in bucket.missing]:
                bucket.fill(parameter)
        self.buckets[-1].message[-len(summary) :] = summary.pack(loss, self.batch_fraction, self.n_backwards)
        self.batch_fraction, self.n_backwards = 0.0, 0
        while self.waiting:
            self.send(self.waiting.popleft())
        sums = [bucket.sum() for bucket in self.buckets]
        self.waiting.extend(self.buckets)
        loss, flags = summary.unpack(sums[-1][-len(summary) :])
        reached = {p for p, flag in zip(parameters, flags, strict=True) if flag}
        for bucket, total in zip(self.buckets, sums, strict=True):
            for parameter, g in zip(bucket.places, bucket.flat.views(total), strict=True):
                parameter.grad = g if parameter in reached else None
        return loss

    def close(self) -> None:
        """Give back the buckets, and the thread or the communicator that summed them."""
        super().close()
        if self.sums is not None:
            self.sums.close()
            del self.start, self.look
        self.sums, self.buckets, self.bucket_of = None, [], {}
        self.waiting.clear()


class Bucket:
    """The gradients of some parameters of one dtype, end to end in one message, and room behind them.

    ``missing`` are the parameters whose gradient of this step is not there yet.
    """

    def __init__(self, parameters: Sequence[Parameter], room: int = 0):
        self.flat = FlatLayout(parameters)
        first = parameters[0].data
        self.message: Array = array_module(first).zeros(self.flat.size + room, first.dtype)
        self.places = dict(zip(parameters, self.flat.views(self.message), strict=True))
        self.missing: set[Tensor] = set(parameters)
        self.summed: Callable[[], Array] | None = None

    def fill(self, parameter: Any) -> None:
        """Copy the gradient of ``parameter`` to its place, unless it was computed there; zeros for None."""
        place = self.places[parameter]
        if parameter.grad is None:
            place[...] = 0
        elif parameter.grad is not place:
            place[...] = parameter.grad
        self.missing.discard(parameter)

    def sum(self) -> Array:
        """Wait for the sum over all ranks; then the message may be filled again."""
        assert self.summed is not None
        total, self.summed = self.summed(), None
        for parameter, place in self.places.items():
            parameter.grad_buffer = place  # the next gradient may be computed there
        self.missing = set(self.places)
        return total


def in_background(comm: Communicator, allreduce: Allreduce | None) -> Sums:
    """Sums by the communication thread."""
    background = comm.background()
    algorithm = allreduce or collectives.allreduce

    def start(x: Array) -> Callable[[], Array]:
        def job(comm: Communicator) -> Array:
            # A thread begins on the first GPU, wherever its rank computes.
            with nullcontext() if array_module(x) is np else x.device:
                return algorithm(comm, x)

        return background.start(job, "allreduce", x.nbytes)

    return Sums(start, lambda: None, background.close)


def tested(comm: Communicator, allreduce: Allreduce | None) -> Sums:
    """Sums that MPI was asked to start, and that go on when the rank looks."""
    own = comm.split(0)  # so that they do not mix with what layers send while backward runs
    if allreduce is None:
        return Sums(own.start_allreduce, own.progress, own.close)
    return Sums(lambda x: lambda: allreduce(own, x), lambda: None, own.close)


def untested(comm: Communicator, allreduce: Allreduce | None) -> Sums:
    """Sums that MPI was asked to start, and that nobody looks at before the end."""
    return tested(comm, allreduce)._replace(look=lambda: None)


def at_once(comm: Communicator, allreduce: Allreduce | None) -> Sums:
    """Sums that are there when ``start`` returns."""
    own = comm.split(0)

    def start(x: Array) -> Callable[[], Array]:
        total = own.allreduce(x) if allreduce is None else allreduce(own, x)
        return lambda: total

    return Sums(start, lambda: None, own.close)


PROGRESS = {"thread": in_background, "test": tested, "none": untested, "blocking": at_once}
