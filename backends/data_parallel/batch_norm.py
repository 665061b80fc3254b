"""Batch-norm whose statistics are those of the whole batch, whichever rank holds the samples.

Lecture section: synchronous data parallelism (batch-norm). Lesson: 06_data_parallel.
"""

from __future__ import annotations

from functools import partial

from minigrad.device import Array
from minigrad.module import Module
from minigrad.nn import BatchNorm
from minigrad.ops.norm import Gather

from ..comm.collectives import allgather
from ..comm.communicator import Communicator

SYNCHRONIZED = {"ranks": False, "synchronised": True}
"""Whether batch-norms use the statistics of all ranks, by the name of the setting."""


def synchronize_batch_norms(model: Module, comm: Communicator) -> bool:
    """Let every batch-norm of ``model`` use the statistics of all ranks. Returns whether there is one.

    Each adds an all-gather to a forward pass, of a count, the means and the squared deviations from them, and
    one to a backward pass. So all ranks must take part in every pass, also those without samples.
    """
    norms = {owner for _, owner, _ in model.named_arrays() if isinstance(owner, BatchNorm)}
    for norm in norms:
        again = isinstance(norm.gather, partial) and norm.gather.func is gather  # the model was placed before
        inner = norm.gather.args[1] if again else norm.gather  # pyright: ignore
        norm.gather = partial(gather, comm, inner)
    return bool(norms)


def gather(comm: Communicator, inner: Gather | None, x: Array) -> list[Array]:
    """``x`` of all ranks, and of those from which ``inner`` gathers, which share a rank's samples."""
    return [part for own in allgather(comm, x) for part in ([own] if inner is None else inner(own))]
