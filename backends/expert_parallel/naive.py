"""Expert parallelism as on the slide: each rank has some experts, and tokens come to them from all ranks.

Lecture section: data and model parallelism together. Lesson: 18_experts. ``exchange.py`` sends each token
only to its experts.
"""

from __future__ import annotations

import numpy as np

from minigrad import ops
from minigrad.data import shares
from minigrad.module import Module
from minigrad.nn.experts import Transform
from minigrad.tensor import Tensor
from minigrad.traits import Traits

from ..comm import differentiable
from ..comm.collectives import allgather, allreduce
from ..comm.communicator import Communicator
from ..data_parallel.naive import NaiveDataParallel
from .own_experts import ExpertsOfRanks, OwnExperts, refuse_shared


def exchange_all(x: Tensor, counts: list[int], experts: Transform, *, comm: Communicator) -> Tensor:
    """Every rank gets all rows, transforms those of its own experts, and the ranks sum their results.

    x (n, width) are this rank's rows, of which expert e has the next ``counts[e]``.
    """
    numbers = np.stack(allgather(comm, np.array(counts)))  # by rank, then by expert
    rows = differentiable.all_gather(x, comm=comm)
    expert_of = np.repeat(np.tile(np.arange(len(counts)), comm.size), numbers.reshape(-1))
    own = shares(len(counts), comm.size)[comm.rank]
    chosen = [np.flatnonzero(expert_of == e) for e in range(own.start, own.stop)]
    mine = np.concatenate([np.zeros(0, int), *chosen])
    y = experts(ops.embedding(rows, mine), [len(places) for places in chosen])
    y = ops.segment_sum(y, mine, count=len(expert_of))  # 0 for the tokens of other ranks' experts
    return differentiable.reduce_scatter(y, comm=comm, sizes=numbers.sum(1).tolist())


class NaiveExpertParallel(NaiveDataParallel):
    """Data parallelism whose ranks hold different experts, all of which see all tokens; equals ``Serial``."""

    traits = Traits(communicates_in_forward=True)
    state_class = ExpertsOfRanks

    def place(self, model: Module) -> Module:
        """The model with this rank's share of each mixture's experts."""
        refuse_shared(model)
        model = super().place(model)
        self.experts = OwnExperts(model, self.comm, exchange_all)
        return model

    def finish(self, model: Module, loss: float) -> float:
        """Sum the gradients and the loss, but not those of experts, to which all ranks' tokens came."""
        for parameter in model.parameters():
            if parameter.requires_grad and parameter not in self.experts.parameters:
                none = np.zeros_like(parameter.data)
                gradient = none if parameter.grad is None else parameter.grad
                parameter.grad = allreduce(self.comm, gradient)
        return float(allreduce(self.comm, np.array(loss)))
