"""Helpers of the strategies that divide the layers of one model among the ranks.

Lecture section: model parallelism. Lesson: 11_model_parallel, by ``model_parallel.py``.
"""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np

from minigrad.backend import Values
from minigrad.module import Module
from minigrad.tensor import Parameter

from .comm.collectives import broadcast
from .comm.communicator import Communicator


class Placeholder(Module):
    """Stands for a layer that lives on another rank: keeps the names of parameters, acts as the identity."""

    def forward(self, x: Any) -> Any:
        return x  # not necessarily a tensor

    def sharded_forward(self, a: Any) -> Any:
        """The identity of sharded tensors too, between layers that are split."""
        return a


def all_gather_named(comm: Communicator, values: Values) -> Values:
    """The arrays of all ranks by name, where no two ranks have the same name. Collective."""
    values_of_all: Values = {}
    for rank in range(comm.size):
        own = values if rank == comm.rank else {}
        text = json.dumps({name: value is not None for name, value in own.items()})
        message = broadcast(comm, np.frombuffer(text.encode(), np.uint8), rank)
        for name, present in json.loads(bytes(message)).items():
            value = broadcast(comm, own.get(name, np.zeros(0)), rank) if present else None
            values_of_all[name] = value
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
            shape = [shard.length if shard and i == shard.axis else n for i, n in enumerate(value.shape)]
            sizes[id(value)] = math.prod(shape) * value.dtype.itemsize
    return sum(sizes.values())
