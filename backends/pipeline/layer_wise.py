"""Consecutive layers on consecutive ranks: forward in sequence, backward in reverse, one rank busy at a time.

Lecture section: model parallelism by consecutive layers. Lesson: 11_model_parallel. For a batch of b samples
b d_i numbers cross the boundary after layer i, whose output has d_i numbers per sample, and as many come
back as their gradient. This saves memory, not time; pipelines keep all ranks busy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from minigrad.data import Batch
from minigrad.declaration import Declaration
from minigrad.lookup import at_least_one
from minigrad.module import Module, Sequential, is_sequential
from minigrad.strategy import Strategy
from minigrad.tensor import Tensor
from minigrad.work import Loss

from ..comm import differentiable
from ..comm.collectives import broadcast, reduce
from ..comm.communicator import Communicator
from ..consistency import broadcast_model, check_same_batch, check_same_on_all_ranks
from ..partition import bounds_by_bytes, check_bounds
from ..placement import LayersOfRanks, Placeholder, TrainedStages, loss_of_output, refuse_placed


class LayerWise(Strategy):
    """Rank s holds the layers from ``bounds[s]`` to ``bounds[s + 1]`` of a Sequential; trains like serial.

    ``bounds`` rise from 0 to the number of layers; by default the largest part of the parameters is as small
    as can be. Every rank has a layer that is trained. Sends the activations and their gradients to the
    neighbours, then the last rank's loss to all.
    """

    declaration = Declaration(chooses={"bounds": "bounds", "micro": "micro_batches"})
    state_class = LayersOfRanks

    def __init__(self, comm: Communicator, bounds: Sequence[int] | None = None, *, micro_batches: int = 1):
        self.comm, self.rank, self.size = comm, comm.rank, comm.size
        self.bounds = None if bounds is None else tuple(bounds)
        self.micro_batches = at_least_one("micro_batches", micro_batches)

    def place(self, model: Module) -> Module:
        """This rank's layers, with rank 0's parameters; placeholders replace the others in ``model``.

        Raises ValueError where ranks have different models, bounds do not fit, or there are more ranks than
        layers that are trained.
        """
        refuse_placed(model, Stage, Placeholder)
        if not is_sequential(model):
            raise ValueError(
                f"layers can be given to ranks where a model is a Sequential, not {type(model).__name__}; "
                "make it one, or split inside of its layers with ModelParallel"
            )
        check_same_on_all_ranks(
            self.comm, model, {"bounds": self.bounds, "micro_batches": self.micro_batches}
        )
        self.bounds = checked_bounds(model, self.size, self.bounds)
        refuse_tied(model, self.bounds)
        broadcast_model(self.comm, model)
        mine = range(self.bounds[self.rank], self.bounds[self.rank + 1])
        model.layers[:] = [layer if i in mine else Placeholder() for i, layer in enumerate(model.layers)]
        self.trained = TrainedStages([model])
        return self.hold(Stage(model, self.comm))

    def begin_step(self, model: Module) -> bool:
        self.trained.check()
        return True

    def check_batch(self, batch: Batch) -> None:
        check_same_batch(self.comm, batch)

    def loss_for(self, model: Module, loss_fn: Loss) -> Loss:
        """Only the last rank has a loss; the others go back from the token of their send."""
        last = self.rank == self.size - 1
        return loss_of_output(loss_fn, self.size) if last else lambda token, _: token

    def on_grad(self, parameter: Tensor) -> bool:
        return True

    def finish(self, model: Module, loss: float) -> float:
        """The last rank's loss, and the penalties of all ranks' layers."""
        last, term = self.size - 1, np.array([loss])
        total = reduce(self.comm, term, root=last)
        return float(broadcast(self.comm, term if total is None else total, last)[0])


class Stage(Module):
    """One rank's layers: it receives from the rank before, computes, and sends to the next rank.

    In training mode each rank returns its own output; in eval mode every rank returns that of the last one,
    which no tape follows. All ranks call it.
    """

    token_wise = True

    def __init__(self, model: Sequential, comm: Communicator):
        self.model, self.comm, self.training = model, comm, model.training

    def named_arrays(self, prefix: str = "") -> Iterator[tuple[str, Module, str]]:
        return self.model.named_arrays(prefix)  # the serial names

    def forward(self, x: Any) -> Tensor:
        comm, last = self.comm, self.comm.size - 1
        if comm.rank > 0:
            x = differentiable.receive(Tensor(0.0, requires_grad=True), comm=comm, source=comm.rank - 1)
        y = self.model(x)
        if comm.rank < last:
            y = differentiable.send(y, comm=comm, to=comm.rank + 1)
        return y if self.training else Tensor(broadcast(comm, y.data, last))


def checked_bounds(model: Sequential, ranks: int, bounds: tuple[int, ...] | None) -> tuple[int, ...]:
    """``bounds``, or the default ones; ValueError unless they give every rank a layer that is trained."""
    trained = [i for i, layer in enumerate(model.layers) if any(p.requires_grad for p in layer.parameters())]
    if not trained:
        raise ValueError("the model has no layer to train; set requires_grad of some parameters to True")
    if ranks > len(trained):
        raise ValueError(
            f"{ranks} ranks cannot each have a trained layer of a model that has {len(trained)} "
            f"(layers {', '.join(map(str, trained))}); take at most {len(trained)} ranks"
        )
    if bounds is None:
        return bounds_by_bytes(model, ranks, starts=trained)
    check_bounds(bounds, ranks, len(model.layers))
    for rank, (start, stop) in enumerate(pairwise(bounds)):
        if not any(start <= i < stop for i in trained):
            raise ValueError(
                f"bounds {bounds} leave rank {rank} without a trained layer; "
                f"there are trained layers {', '.join(map(str, trained))}"
            )
    return bounds


def refuse_tied(model: Module, bounds: tuple[int, ...]) -> None:
    """Raise ValueError where a parameter would be needed on several ranks."""
    for names in model.tied_parameters():
        ranks = {sum(int(name.split(".")[0]) >= bound for bound in bounds[1:]) for name in names}
        if len(ranks) > 1:
            raise ValueError(
                f"{' and '.join(names)} are one parameter, on ranks {', '.join(map(str, sorted(ranks)))}; "
                "choose bounds that keep them on one rank"
            )
