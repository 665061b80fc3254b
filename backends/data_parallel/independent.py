"""Every rank trains a model of its own on its share of each batch; now and then the models meet.

Lecture section: ParallelSGD. Lesson: 09_model_averaging. What all averaging strategies share; they are in
``averaging``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from minigrad.backend import Backend, Loss, at_least_one
from minigrad.data import Batch, shares
from minigrad.device import Array, array_module
from minigrad.module import Module
from minigrad.optimizer import Optimizer
from minigrad.tape import OnGrad

from ..comm.protocol import Comm
from ..consistency import broadcast_model, check_same_on_all_ranks
from .report import is_statistic, trained

Allreduce = Callable[[Comm, Array], Array]


class ModelAveraging(Backend):
    """Each rank updates its own model by its own share's gradient; every ``period`` updates the models meet.

    By mathematics not equal to ``Serial``, except on one rank, which does the same to the last bit. The loss
    of a step is the mean over this rank's own share (0 where that is empty), and so are the gradients.
    With ``same_start`` all begin with rank 0's parameters, otherwise each with its own.
    """

    equals_serial = False

    def __init__(
        self, comm: Comm, allreduce: Allreduce, *, period: int | None, same_start: bool, micro_batches: int
    ):
        self.comm, self.allreduce = comm, allreduce
        self.rank, self.size = comm.rank, comm.size
        self.period = None if period is None else at_least_one("period", period)
        self.same_start = same_start
        self.micro_batches = at_least_one("micro_batches", micro_batches)
        self.updates, self.seen = 0, 0  # since the ranks last met; samples of this rank's since it last told

    def settings(self) -> dict[str, Any]:
        """What must be the same on all ranks."""
        return {name: getattr(self, name) for name in ("period", "same_start", "micro_batches")}

    def place(self, model: Module) -> Module:
        """The whole model. Raises ValueError where ranks built different ones or chose different settings."""
        check_same_on_all_ranks(self.comm, model, self.settings())
        if self.same_start:
            broadcast_model(self.comm, model)
        return model

    def shard(self, batch: Batch) -> Batch:
        """The rank-th of ``size`` consecutive shares, whose sizes differ by at most one."""
        return batch[shares(len(batch), self.size)[self.rank]]

    def weight(self, mine: Batch, batch: Batch) -> float:
        """1: the loss is the mean over this rank's share."""
        return 1.0

    def run(self, model: Module, batch: Batch, loss_fn: Loss, weight: float, on_grad: OnGrad | None) -> float:
        self.seen += len(batch)
        return super().run(model, batch, loss_fn, weight, on_grad)

    def update(self, model: Module, optimizer: Optimizer) -> None:
        """This rank's own update; after every ``period``-th the ranks meet."""
        super().update(model, optimizer)
        self.updates += 1
        if self.updates == self.period:
            self.meet(model)

    def conclude(self, model: Module) -> None:
        """The ranks meet once more, where there were updates since; then all have the same model."""
        if self.updates:
            self.meet(model)

    def meet(self, model: Module) -> None:
        if self.size > 1:
            self.exchange(model)
        self.updates = 0

    def exchange(self, model: Module) -> None:
        """Replace the parameters and running statistics by their mean over all ranks, in one all-reduce."""
        self.average([p.data for p in (trained(model) if self.same_start else model.parameters())], model)

    def average(self, arrays: list[Array], model: Module) -> None:
        """Replace ``arrays`` and the running statistics by their mean; each rank weighs what it has seen."""
        weighted_mean(self.comm, self.allreduce, [*arrays, *statistics(model)], float(self.seen))
        self.seen = 0


def statistics(model: Module) -> list[Array]:
    """The running statistics and the like: what a model holds beside its parameters, in floats."""
    found = (getattr(owner, attribute) for _, owner, attribute in model.named_arrays())
    return [value for value in found if is_statistic(value)]


def weighted_mean(comm: Comm, allreduce: Allreduce, arrays: Sequence[Array], weight: float) -> None:
    """Replace ``arrays``, in place, by their mean over the ranks; each rank counts ``weight`` times.

    One all-reduce of 1 + all their elements. Where all weights are 0 they stay as they are.
    """
    xp = array_module(arrays[0])
    message = xp.concatenate([xp.ones(1, arrays[0].dtype), *(a.reshape(-1) for a in arrays)])
    message *= weight
    total = allreduce(comm, message)
    weights = float(total[0])
    if not weights:
        return
    total /= weights
    start = 1
    for array in arrays:
        array[...] = total[start : start + array.size].reshape(array.shape)
        start += array.size
