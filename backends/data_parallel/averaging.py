"""Models trained apart are averaged: at the very end, every few updates, or through a common centre.

Lecture section: ParallelSGD. Lesson: 09_model_averaging. Far fewer messages than one per step; the price
is that the result is another one than a single machine's.
"""

from __future__ import annotations

from typing import Any

from minigrad.backend import SquareNorms
from minigrad.device import Array, array_module
from minigrad.module import Module
from minigrad.optim import Optimizer

from ..comm.collectives import allreduce
from ..comm.protocol import Comm
from .flat import Flat
from .independent import Allreduce, ModelAveraging, statistics
from .report import trained


class ParallelSGD(ModelAveraging):
    """Independent training, and one average at the very end (Zinkevich, Weimer, Smola and Li 2010).

    After ``place`` one all-reduce in the whole run: 1 + parameters + running statistics elements. Not equal
    to ``Serial``, and for networks far from it: models that go apart for epochs have a poor mean, the poorer
    the more ranks (``benchmarks/README.md`` has figures); ``LocalSGD`` stays close. With ``same_start`` False
    each rank keeps its own initialisation, and the average of such networks is worth little: their hidden
    neurons have different places.
    """

    def __init__(
        self,
        comm: Comm,
        allreduce: Allreduce = allreduce,
        *,
        same_start: bool = True,
        micro_batches: int = 1,
    ):
        super().__init__(comm, allreduce, period=None, same_start=same_start, micro_batches=micro_batches)


class LocalSGD(ModelAveraging):
    """Parameters are averaged every ``period`` updates and at the end: ceil(updates / period) all-reduces.

    Each rank counts by the samples it saw since the last average. With ``average_momentum`` what the
    optimizer keeps is averaged in the same message. Equal to synchronous SGD for ``period`` 1 with
    plain SGD, or with averaged momentum; otherwise not equal to ``Serial`` (Stich 2019).
    """

    def __init__(
        self,
        comm: Comm,
        allreduce: Allreduce = allreduce,
        *,
        period: int = 8,
        average_momentum: bool = True,
        same_start: bool = True,
        micro_batches: int = 1,
    ):
        super().__init__(comm, allreduce, period=period, same_start=same_start, micro_batches=micro_batches)
        self.average_momentum = average_momentum
        self.optimizer: Optimizer | None = None

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), "average_momentum": self.average_momentum}

    def update(self, model: Module, optimizer: Optimizer, square_norms: SquareNorms | None = None) -> None:
        if self.average_momentum and self.optimizer is not optimizer:
            self.optimizer = optimizer
            complete_state(optimizer)
        super().update(model, optimizer, square_norms)

    def average(self, arrays: list[Array], model: Module) -> None:
        states = [] if self.optimizer is None else self.optimizer.state
        momenta = [a for state in states for a in state.values() if not isinstance(a, int | float)]
        numbers = [(s, name) for s in states for name in s if isinstance(s[name], int | float)]
        counts = array_module(arrays[0]).asarray([s[name] for s, name in numbers], arrays[0].dtype)
        super().average([*arrays, *momenta, counts], model)  # counts: such as Adam's number of steps
        for (state, name), mean in zip(numbers, counts.tolist(), strict=True):
            state[name] = round(mean) if isinstance(state[name], int) else mean


class ElasticAveraging(ModelAveraging):
    """Each model is tied to a common centre by a spring: EASGD (Zhang, Choromanska and LeCun 2015).

    Every ``period`` updates d_i = alpha (x_i - c), x_i <- x_i - d_i and c <- c + sum of the d_i, in the form
    with one all-reduce, the centre c held on every rank; the sum of all x_i and c stays what it was.
    ``alpha`` is 0.9 / ranks by default; 0 lets the ranks train independently. Afterwards the model is
    the centre. Not equal to ``Serial``; one rank has nobody to be tied to, and trains like it.
    """

    def __init__(
        self,
        comm: Comm,
        allreduce: Allreduce = allreduce,
        *,
        alpha: float | None = None,
        period: int = 8,
        micro_batches: int = 1,
    ):
        super().__init__(comm, allreduce, period=period, same_start=True, micro_batches=micro_batches)
        self.alpha = 0.9 / comm.size if alpha is None else alpha
        if not 0 <= self.alpha <= 1:
            raise ValueError(f"alpha is a share of the way to the centre, 0 to 1, got {alpha}")

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), "alpha": self.alpha}

    def place(self, model: Module) -> Module:
        model = super().place(model)
        self.layout = Flat(trained(model))
        self.centre = self.parameters()
        return model

    def parameters(self) -> Array:
        """A copy of this rank's parameters, end to end."""
        return self.layout.packed([p.data for p in self.layout.parameters])

    def exchange(self, model: Module) -> None:
        """Pull this rank's model and the centre towards each other, in one all-reduce of the parameters."""
        pull = self.parameters()
        pull -= self.centre
        pull *= self.alpha
        for parameter, part in zip(self.layout.parameters, self.layout.views(pull), strict=True):
            parameter.data -= part
        self.centre += self.allreduce(self.comm, pull)

    def finalize(self, model: Module) -> None:
        """A last exchange, where one is due; then the centre becomes the model, with averaged statistics."""
        super().finalize(model)
        if self.size > 1:
            for parameter, part in zip(self.layout.parameters, self.layout.views(self.centre), strict=True):
                parameter.data[...] = part
            if statistics(model):
                self.average([], model)


def complete_state(optimizer: Optimizer) -> None:
    """Give the optimizer a state, of zeros, also for parameters that this rank's samples have not reached.

    Others may have reached them, and one message needs one layout on all ranks: an update of a copy that
    is thrown away shows what this optimizer keeps.
    """
    for parameter, state in zip(optimizer.parameters, optimizer.state, strict=False):
        if parameter.requires_grad and not state:
            xp, w = array_module(parameter.data), parameter.data.copy()
            optimizer.update(w, xp.ones_like(w), state, optimizer.lr)
            for name, value in state.items():
                if isinstance(value, int):
                    state[name] = 0
                elif not isinstance(value, float):
                    value[...] = 0
