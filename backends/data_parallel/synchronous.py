"""Synchronous data parallelism, before it is said how the gradients are reduced.

Lecture section: synchronous data parallelism. Lesson: 06_data_parallel, by ``data_parallel.py``.
"""

from __future__ import annotations

from dataclasses import replace

from minigrad.data import Batch, shares
from minigrad.lookup import at_least_one, lookup
from minigrad.module import Module
from minigrad.strategy import Strategy
from minigrad.tensor import Tensor
from minigrad.work import ForwardBackward, Work, forward_backward_pass

from ..comm.communicator import Communicator
from ..consistency import broadcast_model, check_same_on_all_ranks, checksum_of, synchronize_batch_norms
from .step_summary import StepSummary

SYNCHRONIZED = {"ranks": False, "synchronized": True}
"""Whether batch-norms use the statistics of all ranks, by the name of the setting."""


class SynchronousDataParallel(Strategy):
    """Every rank computes the gradients of its share of the batch; subclasses sum them in ``finish``.

    Each rank's loss is weighted by its share of the batch when backward starts, so a reduction only sums
    (CIS631's weighted average, exact for any shares). ``batch_norm`` is "ranks", where each rank uses its own
    statistics as in the lecture (a serial batch-norm over groups), or "synchronized", where all ranks use
    those of the whole batch.
    """

    def __init__(self, comm: Communicator, *, micro_batches: int = 1, batch_norm: str = "ranks"):
        self.comm, self.rank, self.size = comm, comm.rank, comm.size
        self.micro_batches = at_least_one("micro_batches", micro_batches)
        self.batch_norm = batch_norm
        synchronized = lookup("batch_norm", batch_norm, SYNCHRONIZED)
        self.traits = replace(self.traits, communicates_in_forward=synchronized)
        self.step_summary: StepSummary | None = None

    def place(self, model: Module) -> Module:
        """The whole model, with the parameters and state arrays of rank 0.

        Raises ValueError, naming both, where ranks built different models or chose different settings.
        """
        check_same_on_all_ranks(self.comm, model, self.declaration.settings(self))
        broadcast_model(self.comm, model)
        self.use_ranks(model)
        self.names: dict[Tensor, str] = {p: name for name, p in model.named_parameters().items()}
        return self.hold(model)

    def use_ranks(self, model: Module) -> None:
        """Prepare the exchange of gradients and statistics among the ranks of ``comm``."""
        if self.batch_norm == "synchronized":
            synchronize_batch_norms(model, self.comm)
        self.step_summary = StepSummary(model, self.rank, self.size, statistics=self.batch_norm == "ranks")

    @property
    def summary(self) -> StepSummary:
        if self.step_summary is None:
            raise RuntimeError("this backend has no model yet; call model = backend.place(model) first")
        return self.step_summary

    def check_batch(self, batch: Batch) -> None:
        """Add no message: the checksum travels in the summary of the step."""
        self.summary.batch_checksum = checksum_of(batch)

    def shard(self, batch: Batch) -> Batch:
        """The rank-th of ``size`` consecutive shares, whose sizes differ by at most one."""
        return batch[shares(len(batch), self.size)[self.rank]]

    def forward_backward(self, work: Work, inner: ForwardBackward = forward_backward_pass) -> float:
        self.summary.count_backward(work.loss_weight)
        return super().forward_backward(work, inner)

    def close(self) -> None:
        """Free what was placed; gradients that are views of a message are copied."""
        super().close()
        for parameter in [] if self.step_summary is None else self.step_summary.parameters:
            parameter.grad_buffer = None
            if parameter.grad is not None:
                parameter.grad = parameter.grad.copy()
        self.step_summary = None
