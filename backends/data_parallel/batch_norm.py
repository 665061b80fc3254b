"""Batch-norm whose statistics are those of the whole batch, whatever rank holds the samples.

Lecture section: synchronous data parallelism (batch-norm). Lesson: 06_data_parallel.
"""

from __future__ import annotations

from functools import partial

from minigrad.device import Array
from minigrad.lookup import check_choice
from minigrad.module import Module
from minigrad.nn import BatchNorm
from minigrad.ops.norm import Gather

from ..comm.collectives import allgather
from ..comm.communicator import Communicator

BATCH_NORMS = ("ranks", "synchronised")


def check_batch_norm(given: str) -> str:
    """``given``; raises ValueError, naming the choices, for any other."""
    check_choice("batch_norm", given, BATCH_NORMS)
    return given


def synchronise(model: Module, comm: Communicator) -> bool:
    """Make every batch-norm of ``model`` use the statistics of all ranks; whether there is any.

    Each then adds one all-gather to a forward pass, of a count, the means and the squared deviations from
    them, and one to a backward pass. So all ranks go through every pass, those without samples too.
    """
    norms = {owner for _, owner, _ in model.named_arrays() if isinstance(owner, BatchNorm)}
    for norm in norms:
        again = isinstance(norm.gather, partial) and norm.gather.func is gathered  # it was placed before
        inside = norm.gather.args[1] if again else norm.gather  # pyright: ignore
        norm.gather = partial(gathered, comm, inside)
    return bool(norms)


def gathered(comm: Communicator, inside: Gather | None, x: Array) -> list[Array]:
    """All ranks' ``x``; where other ranks share this one's samples, all of those that ``inside`` brings."""
    return [found for part in allgather(comm, x) for found in ([part] if inside is None else inside(part))]
