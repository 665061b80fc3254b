"""On one machine no gradient is sent: ranks sum them, and update one copy of the weights, in shared memory.

Lecture section: synchronous data parallelism. Lesson: 06_data_parallel.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from functools import reduce as fold
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from minigrad.data import shares
from minigrad.module import Module
from minigrad.optim import Optimizer, Part
from minigrad.placed_state import Values
from minigrad.traits import Traits

from ..comm.collectives import allreduce
from ..comm.communicator import Communicator
from ..comm.shared_memory import SharedMemory
from .bucket import Bucket
from .flat import FlatLayout
from .sharded_optimizer import Elements, ShardedOptimizer
from .synchronous import SynchronousDataParallel

BLOCK = 1 << 15  # elements: the weights, gradients and momentum of one block fit in a cache together


class Block(NamedTuple):
    """Some elements of parameter ``n``: the weights, and each rank's gradient of them."""

    n: int
    w: np.ndarray
    gradients: list[np.ndarray]


class SharedMemoryState(ShardedOptimizer):
    """The state of a model whose weights and optimizer the ranks share, while each has its gradients."""

    backend: SharedMemoryDataParallel

    def owned_by(self, rank: int) -> Iterator[Elements]:
        flat = FlatLayout(self.backend.summary.parameters)
        for n, within in self.backend.block_elements(flat, rank):
            yield flat.parameters[n], within

    def gradient_values(self, model: Module) -> Values:
        gradients = zip(self.backend.summary.parameters, *self.backend.gradients, strict=True)
        sums = {p: fold(np.add, gs) for p, *gs in gradients if p.grad is not None}
        values = {name: sums.get(p) for name, p in model.named_parameters().items()}
        self.backend.memory.barrier("to read the gradients")
        return values

    @contextmanager
    def accumulate(self, model: Module) -> Iterator[None]:
        """Each rank adds its own gradients in shared memory; returns when all ranks have."""
        backend = self.backend
        earlier = {p: p.grad.copy() for p in backend.summary.parameters if p.grad is not None}
        for parameter in earlier:
            parameter.grad = None
        yield
        if not earlier:
            return
        for n, (parameter, view) in enumerate(backend.bucket.views.items()):
            if parameter in earlier:
                view += earlier[parameter]
                parameter.grad, backend.reached[n] = view, True
        backend.memory.barrier("to add up the gradients of several steps")

    def global_square_norms(self, model: Module, squares: np.ndarray) -> np.ndarray:
        """The sum over the ranks, as each has those of its share."""
        return allreduce(self.backend.comm, squares)


class SharedMemoryDataParallel(SynchronousDataParallel):
    """Data parallelism in memory that the ranks of one machine share; trains like ``Serial``.

    Each rank computes its gradients in memory that the others can read. When all have computed them, it sums
    its share of the elements in rank order (the bits of the naive all-reduce), a block at a time, and passes
    each block to the optimizer while it is in the cache; all ranks wait until all shares are updated. Each
    share of the optimizer's state is on the rank that uses it. A step sends no message (only a few numbers if
    the optimizer needs norms). ``grad`` stays this rank's own, and is not clipped.

    ``place`` raises ValueError where the ranks do not share a machine or the weights are on a GPU.
    """

    traits = Traits(outermost_only=True)
    state_class = SharedMemoryState

    def __init__(self, comm: Communicator, *, micro_batches: int = 1, batch_norm: str = "ranks"):
        super().__init__(comm, micro_batches=micro_batches, batch_norm=batch_norm)
        self.memory: Any = None
        self.bucket: Any = None  # of this rank's gradients
        self.blocks: list[Block] = []

    def place(self, model: Module) -> Module:
        """The model with the parameters of rank 0; the trained ones are in shared memory."""
        model = super().place(model)
        parameters, length = self.summary.parameters, len(self.summary)
        flat = FlatLayout(parameters)
        first = parameters[0].data
        if type(first) is not np.ndarray:
            raise ValueError(
                "the ranks share the machine's memory, and this model's weights are on a GPU; "
                "take strategy replicated or sharded, or device numpy"
            )
        # Two summaries for each rank, in turns: a rank writes one while slower ones may still read the other.
        dtype, nbytes = self.summary.dtype, flat.size * first.itemsize
        start = -(-nbytes // dtype.itemsize) * dtype.itemsize
        stop = start + 2 * length * dtype.itemsize
        self.memory = self.shared(stop)
        self.summaries = [part[start:stop].view(dtype).reshape(2, -1) for part in self.memory.parts]
        windows = [part[:nbytes].view(first.dtype) for part in self.memory.parts]
        self.gradients = [flat.views(window) for window in windows]
        self.bucket = Bucket(parameters, windows[self.rank])
        self.turn = 0
        self.reached = [False] * len(parameters)
        weights = self.shared(flat.size * first.itemsize if self.rank == 0 else 0)
        for parameter, view in zip(parameters, flat.views(weights.parts[0].view(first.dtype)), strict=True):
            if self.rank == 0:
                view[...] = parameter.data
            parameter.data = view
        weights.barrier("to place the model")
        self.blocks = list(self.cut_into_blocks(flat))
        return model

    def shared(self, nbytes: int) -> SharedMemory:
        memory = self.comm.share(nbytes)
        if memory is None:
            raise ValueError(
                f"the {self.size} ranks do not share a machine, as this strategy must; "
                "take strategy replicated or sharded, or start all ranks on one machine"
            )
        return memory

    def cut_into_blocks(self, flat: FlatLayout) -> Iterator[Block]:
        """This rank's blocks."""
        views = [[p.data for p in flat.parameters], *self.gradients]
        for n, elements in self.block_elements(flat, self.rank):
            w, *gradients = (view[n].reshape(-1)[elements] for view in views)
            yield Block(n, w, gradients)

    def block_elements(self, flat: FlatLayout, rank: int) -> Iterator[tuple[int, slice]]:
        """Numbers of parameters, and a rank's elements of them: its share of each stripe of all elements.

        A stripe is shared, not a parameter, because the gradients that were computed last are still in a
        cache (2 % of a step of W2 in the benchmarks).
        """
        stripe = BLOCK * self.size
        for start in range(0, flat.size, stripe):
            share = shares(min(stripe, flat.size - start), self.size)[rank]
            for n, (first, last) in enumerate(pairwise(flat.starts)):
                elements = slice(max(start + share.start - first, 0), min(start + share.stop, last) - first)
                if elements.start < elements.stop:
                    yield n, elements

    def finish(self, model: Module, loss: float) -> float:
        """Wait until all ranks have their gradients; return the loss of the batch."""
        self.bucket.fill(self.bucket.views)
        self.summaries[self.rank][self.turn] = self.summary.pack(loss)
        self.memory.barrier("to finish a step")
        loss, self.reached = self.summary.unpack(fold(np.add, (x[self.turn] for x in self.summaries)))
        self.turn = 1 - self.turn
        for (parameter, g), reached in zip(self.bucket.views.items(), self.reached, strict=True):
            parameter.grad = g if reached else None
        return loss

    def update(self, model: Module, optimizer: Optimizer) -> None:
        """Update this rank's share of the weights; return when all ranks have updated theirs."""
        self.check_update(model, optimizer)
        optimizer.step(self.parts(optimizer), partial(self.state.total_squares, model, optimizer))
        self.memory.barrier("to update")

    def close(self) -> None:
        """Free the shared memory; each rank's model gets its own copy of the weights."""
        for parameter in [] if self.step_summary is None else self.step_summary.parameters:
            parameter.data = parameter.data.copy()
        super().close()
        self.memory = self.bucket = None
        self.gradients, self.summaries, self.blocks = [], [], []

    def parts(self, optimizer: Optimizer) -> Iterator[Part]:
        """This rank's blocks; the gradients of a block are summed when the optimizer reaches it."""
        numbers = {parameter: n for n, parameter in enumerate(optimizer.parameters)}
        for n, w, gradients in self.blocks:
            parameter = self.summary.parameters[n]
            if parameter in numbers:
                yield Part(numbers[parameter], w, fold(np.add, gradients) if self.reached[n] else None)
