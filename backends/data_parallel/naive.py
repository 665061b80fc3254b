"""Data parallelism as on the slide: all ranks hold the whole model, share the batch and sum their gradients.

Lecture section: synchronous data parallelism. Lesson: 06_data_parallel. ``data_parallel.py`` is the same
with one message for all gradients.
"""

from __future__ import annotations

import numpy as np

from minigrad.data import Batch, shares
from minigrad.device import array_module
from minigrad.module import Module
from minigrad.strategy import Strategy

from ..comm.collectives import allreduce
from ..comm.communicator import Communicator
from ..consistency import broadcast_model, check_same_batch


class NaiveDataParallel(Strategy):
    """Every rank holds the whole model and a share of the batch; after backward the gradients are summed.

    A rank's loss is weighted by its share of the batch when backward starts, so sums are enough: it trains
    like ``Serial`` for any shares, even empty ones. A trained parameter that no rank's loss reaches gets the
    gradient zero instead of None; a batch-norm's running statistics stay those of each rank's own share.
    """

    def __init__(self, comm: Communicator):
        self.comm, self.rank, self.size = comm, comm.rank, comm.size

    def place(self, model: Module) -> Module:
        """The whole model, with the parameters of rank 0."""
        broadcast_model(self.comm, model)
        return self.hold(model)

    def check_batch(self, batch: Batch) -> None:
        check_same_batch(self.comm, batch)

    def shard(self, batch: Batch) -> Batch:
        """The rank-th of ``size`` consecutive shares, whose sizes differ by at most one."""
        return batch[shares(len(batch), self.size)[self.rank]]

    def finish(self, model: Module, loss: float) -> float:
        """Sum each gradient, and the loss, over the ranks: one all-reduce for each."""
        for parameter in model.parameters():
            if parameter.requires_grad:
                if parameter.grad is None:
                    parameter.grad = array_module(parameter.data).zeros_like(parameter.data)
                parameter.grad = allreduce(self.comm, parameter.grad)
        return float(allreduce(self.comm, np.array(loss)))
