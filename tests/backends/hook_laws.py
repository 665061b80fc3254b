"""Laws of minigrad/backend.py, traits.py and strategy.py: the hooks alone train like serial, and so do
traits of strategies together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from backends.comm import run_ranks
from backends.comm.collectives import allreduce
from backends.comm.communicator import Communicator
from minigrad import ops, optim
from minigrad.backend import Backend
from minigrad.data import Batch, shares
from minigrad.module import Module
from minigrad.serial import Serial
from minigrad.traits import Traits


class SlideAlone(Backend):
    """Data parallelism by the hooks of the slide and nothing else."""

    def __init__(self, comm: Communicator):
        self.comm, self.rank, self.size = comm, comm.rank, comm.size

    def shard(self, batch: Batch) -> Batch:
        return batch[shares(len(batch), self.size)[self.rank]]

    def finish(self, model: Module, loss: float) -> float:
        for parameter in model.parameters():
            parameter.grad = allreduce(self.comm, parameter.grad)
        return float(allreduce(self.comm, np.array(loss)))


def the_hooks_alone_train_like_serial(
    ranks: int, batches: Sequence[Batch], build: Callable[[np.random.Generator], Module]
) -> None:
    """Losses and parameters, for batches with a sample for each rank."""

    def trained(backend: Backend) -> tuple[list[float], list[np.ndarray]]:
        model, losses = backend.place(build(np.random.default_rng(0)).to(dtype=np.float64)), []
        optimizer = optim.SGD(model.parameters(), 0.1, momentum=0.9)
        for batch in batches:
            optimizer.zero_grad()
            losses.append(backend.step(model, batch, ops.cross_entropy))
            backend.update(model, optimizer)
        return losses, [p.data for p in model.parameters()]

    losses, parameters = trained(Serial())
    for losses_of_rank, parameters_of_rank in run_ranks(ranks, lambda comm: trained(SlideAlone(comm))):
        np.testing.assert_allclose(losses_of_rank, losses, rtol=1e-12)
        for a, b in zip(parameters_of_rank, parameters, strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-13)


def traits_together_depart_where_one_does(members: Sequence[set[str]]) -> None:
    """``members`` are the names of the traits in which each differs from serial training."""
    serial = vars(Traits())
    together = Traits.of_all([Traits(**{name: not serial[name] for name in names}) for names in members])
    departs = {name for name, value in vars(together).items() if value != serial[name]}
    assert departs == set().union(*members), f"together they depart in {departs}, each in {members}"
