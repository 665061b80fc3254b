"""What the tests of split models share: what one rank sends, and strategies with a layer that is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from backends.comm.collectives import ring_allreduce
from backends.comm.communicator import Communicator, WithAllreduce
from backends.comm.trace import Traced
from backends.model_parallel.model_parallel import PASS_THROUGH, SPLITS, ModelParallel
from minigrad.device import Array
from minigrad.module import Module
from minigrad.tape import Tape
from minigrad.tensor import Tensor


def contiguous_ring(comm: Communicator, x: Array) -> Array:
    """A ring that forgets how arrays lie in memory, as MPI's all-reduce."""
    return ring_allreduce(comm, np.ascontiguousarray(x))


def sent(
    comm: Communicator, model: Module, plan: Mapping[str, str], x: Array, *, wants_gradient: bool = True
) -> list[tuple[int, int]]:
    """(messages, numbers) that this rank sends in a forward pass, and in a backward pass."""
    traced = Traced(comm)
    ring = WithAllreduce(traced, contiguous_ring)
    placed, ledger = ModelParallel(ring, plan).place(model), traced.record.ledger
    totals = [ledger.sent()]
    with Tape() as tape:
        y = placed(Tensor(x, requires_grad=wants_gradient))
    totals.append(ledger.sent())
    tape.backward(y, np.ones(y.shape))
    totals.append(ledger.sent())
    return [
        (later[0] - earlier[0], (later[1] - earlier[1]) // x.itemsize)
        for earlier, later in zip(totals, totals[1:], strict=False)
    ]


def allreduced(ranks: int, *numbers: int) -> tuple[int, int]:
    """What a rank sends for all-reduces of so many numbers around a ring, where they divide evenly."""
    return 2 * (ranks - 1) * len(numbers), 2 * sum(numbers) * (ranks - 1) // ranks


def allgathered(ranks: int, *numbers: int) -> tuple[int, int]:
    """What a rank sends for all-gathers of so many numbers in all."""
    return (ranks - 1) * len(numbers), sum(numbers) * (ranks - 1) // ranks


def using(
    splits: Mapping[type[Module], Mapping[str, Any]] | None = None,
    pass_through: Mapping[type[Module], Any] | None = None,
) -> type[ModelParallel]:
    """A ModelParallel with some of its layers replaced."""

    class Replaced(ModelParallel):
        pass

    Replaced.splits = {layer: {**makers, **(splits or {}).get(layer, {})} for layer, makers in SPLITS.items()}
    Replaced.pass_through = {**PASS_THROUGH, **(pass_through or {})}
    return Replaced
