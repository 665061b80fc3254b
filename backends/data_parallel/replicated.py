"""Every rank holds the whole model and a share of the batch; the gradients are summed.

Lecture section: synchronous data parallelism. The naive form, and the reference of the others: one
all-reduce of everything after backward.
"""

from __future__ import annotations

from collections.abc import Callable

from minigrad.backend import Backend
from minigrad.data import Batch, shares
from minigrad.device import Array, array_module
from minigrad.module import Module
from minigrad.tensor import Parameter

from ..comm.collectives import allreduce, broadcast
from ..comm.protocol import Comm


class DataParallel(Backend):
    """Synchronous data parallelism over ``comm``; trains like ``Serial`` for any shares, even empty ones.

    The mean goes in when backward starts: each rank's loss is weighted by its share of the batch, so
    the all-reduce only sums (CIS631's weighted average, exact for any shares).
    """

    def __init__(self, comm: Comm, allreduce: Callable[[Comm, Array], Array] = allreduce):
        self.comm, self.allreduce = comm, allreduce
        self.rank, self.size = comm.rank, comm.size

    def place(self, model: Module) -> Module:
        """The whole model, with rank 0's parameters and state arrays."""
        for _, owner, attribute in model.named_arrays():
            value = getattr(owner, attribute)
            array = value.data if isinstance(value, Parameter) else value
            array[...] = broadcast(self.comm, array)
        return model

    def shard(self, batch: Batch) -> Batch:
        """The rank-th of ``size`` consecutive shares, whose sizes differ by at most one."""
        return batch[shares(len(batch), self.size)[self.rank]]

    def finish(self, model: Module, loss: float) -> float:
        """Sum the gradients and the loss of all ranks, in one message.

        A parameter that no rank's loss reached keeps the gradient None, as it would serially; so each
        rank also says which it reached, and sends zeros for the others.
        """
        parameters = [p for p in model.parameters() if p.requires_grad]
        xp = array_module(parameters[0].data)
        reached = [float(p.grad is not None) for p in parameters]
        grads = [xp.zeros_like(p.data) if p.grad is None else p.grad for p in parameters]
        head = xp.asarray([loss, *reached], dtype=grads[0].dtype)
        total = self.allreduce(self.comm, xp.concatenate([head, *(g.reshape(-1) for g in grads)]))
        start = len(head)
        for i, (parameter, g) in enumerate(zip(parameters, grads, strict=True), 1):
            if total[i]:
                parameter.grad = total[start : start + g.size].reshape(g.shape).astype(g.dtype, copy=False)
            start += g.size
        return float(total[0])
