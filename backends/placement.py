"""Helpers of the strategies that divide the layers of one model among the ranks.

Lecture section: model parallelism. Lesson: 11_model_parallel, by ``model_parallel.py``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from minigrad.module import Module
from minigrad.placed_state import PlacedState, Values
from minigrad.tape import current_tape
from minigrad.tensor import Parameter, Tensor
from minigrad.work import Loss

from .comm.allgather_json import allgather_json
from .comm.collectives import allgather, broadcast
from .comm.communicator import Communicator


class Placeholder(Module):
    """Stands for a layer that lives on another rank: keeps the names of parameters, acts as the identity."""

    token_wise = True

    @property
    def is_whole(self) -> bool:
        return False

    def forward(self, x: Any) -> Any:
        return x  # not necessarily a tensor

    def sharded_forward(self, a: Any) -> Any:
        """The identity of sharded tensors too, between layers that are split."""
        return a


def refuse_placed(model: Module, *kinds: type[Module]) -> None:
    """Raise ValueError for a model that has modules of these ``kinds``, as one that was placed before."""
    if any(isinstance(module, kinds) for module in model.modules()):
        raise ValueError(
            "the model was placed before, and this rank holds only its part of it; build the model anew, and "
            "load backend.state.full_parameters(model) | backend.state.full_state(model) to go on"
        )


def loss_of_output(loss_fn: Loss, ranks: int) -> Loss:
    """``loss_fn``, which raises ValueError where its value depends on parameters, as with a penalty on them.

    Of several ``ranks`` each holds a part of the model, and would add the penalty on its own parameters only.
    """
    if ranks == 1:
        return loss_fn

    def loss(out: Tensor, y: Any) -> Tensor:
        tape = current_tape.get()
        if tape is None:
            return loss_fn(out, y)
        start = len(tape.entries)
        value = loss_fn(out, y)
        ops = [entry for entry in tape.entries[start:] if isinstance(entry, list)]
        inputs = [tape.entries[place] for entry in ops for place, *_ in entry]
        if parameters := [x for x in inputs if isinstance(x, Parameter)]:
            raise ValueError(
                f"the loss depends on a parameter of shape {parameters[0].shape} itself, and a rank with a "
                "part of the model sees only its own; for a penalty take the optimizer's weight_decay"
            )
        return value

    return loss


class TrainedStages:
    """Which parameters of each of a rank's stages are trained: the messages of a pipeline depend on it."""

    def __init__(self, stages: Sequence[Module]):
        self.stages = [
            [(name, p, p.requires_grad) for name, p in stage.named_parameters().items()] for stage in stages
        ]

    def check(self) -> None:
        """Raise ValueError for a parameter that was frozen and is not, and for a stage that is frozen now."""
        for stage in self.stages:
            for name, parameter, trained in stage:
                if parameter.requires_grad and not trained:
                    raise ValueError(
                        f"{name} was frozen when the model was placed, so gradients may not come this far; "
                        "set requires_grad before backend.place(model)"
                    )
            trained = [(name, p) for name, p, trained in stage if trained]
            if trained and not any(p.requires_grad for _, p in trained):
                raise ValueError(
                    f"{', '.join(name for name, _ in trained)} were trained when the model was placed, and "
                    "now this stage has nothing to train; set requires_grad before backend.place(model)"
                )


class LayersOfRanks(PlacedState):
    """The state of a model of which each rank holds some layers, whole, in ``backend.comm``."""

    def unshard_values(self, model: Module, values: Values) -> Values:
        """All ranks' arrays, by name."""
        return all_gather_named(self.backend.comm, values)

    def global_square_norms(self, model: Module, squares: np.ndarray) -> np.ndarray:
        """This rank's sums, then those of the other ranks' parameters."""
        sums = allgather(self.backend.comm, squares)
        others = (rows for rank, rows in enumerate(sums) if rank != self.backend.rank)
        return np.concatenate([squares, *others])


def all_gather_named(comm: Communicator, values: Values) -> Values:
    """The arrays of all ranks by name, where no two ranks have the same name. Collective."""
    values_of_all: Values = {}
    for rank, present in enumerate(allgather_json(comm, {name: x is not None for name, x in values.items()})):
        for name in present:
            x = broadcast(comm, values.get(name, np.zeros(0)), rank) if present[name] else None
            values_of_all[name] = x
    return values_of_all


def shards_of(model: Module) -> dict[tuple[Module, str], Any]:
    """By module and attribute: which ``Shard`` of the serial model's array it holds, where not the whole."""
    return {
        (owner, attribute): shards[name]
        for module in model.modules()
        if (shards := getattr(module, "shards", None))
        for name, owner, attribute in module.named_arrays()
        if name in shards
    }


def full_nbytes(layer: Module) -> int:
    """Bytes of a layer's parameters before they were split, the same on all ranks."""
    sizes, shards = {}, shards_of(layer)
    for _, owner, attribute in layer.named_arrays():
        value, shard = getattr(owner, attribute), shards.get((owner, attribute))
        if isinstance(value, Parameter):
            shape = shard.full_shape(value.shape) if shard else value.shape
            sizes[id(value)] = math.prod(shape) * value.dtype.itemsize
    return sum(sizes.values())
