"""What all ranks must agree on before they train together, looked at once, when the model is placed.

Lecture section: synchronous data parallelism. Lesson: 06_data_parallel.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from minigrad.module import Module
from minigrad.tensor import Parameter

from .comm.collectives import allgather, broadcast
from .comm.communicator import Communicator


def check_same_on_all_ranks(comm: Communicator, model: Module, settings: dict[str, Any]) -> None:
    """Raise ValueError, on every rank, unless all ranks built the same model and chose the same settings.

    The error names the first parameter (or state array) that differs from rank 0's and both shapes, or
    the first setting and both values. One small message around the ring.
    """
    mine = json.dumps({"settings": settings, "arrays": described(model)}, default=str).encode()
    texts = allgather(comm, np.frombuffer(mine, np.uint8))
    first, *others = (json.loads(bytes(text)) for text in texts)
    for rank, other in enumerate(others, 1):
        for name in [*first["settings"], *(other["settings"].keys() - first["settings"].keys())]:
            one, two = (found["settings"].get(name, "nothing") for found in (first, other))
            if one != two:
                raise ValueError(
                    f"rank 0 has {name} = {one}, rank {rank} has {two}; give all ranks the same settings"
                )
        for name in [*first["arrays"], *(other["arrays"].keys() - first["arrays"].keys())]:
            one, two = (found["arrays"].get(name, "nothing of that name") for found in (first, other))
            if one != two:
                raise ValueError(
                    f"the ranks built different models: {name} is {one} on rank 0, {two} on rank {rank}; "
                    "build the same model on every rank"
                )
        if list(first["arrays"]) != list(other["arrays"]):
            raise ValueError(
                f"rank 0 and rank {rank} built the same parameters in another order; "
                "build the same model on every rank"
            )


def described(model: Module) -> dict[str, str]:
    """Dtype, shape and whether it is trained, of every array by name; a tied one says whose it is."""
    names: dict[int, str] = {}
    found = {}
    for name, owner, attribute in model.named_arrays():
        value = getattr(owner, attribute)
        first = names.setdefault(id(value), name)
        frozen = isinstance(value, Parameter) and not value.requires_grad
        found[name] = f"tied to {first}" if first != name else described_array(value, frozen)
    return found


def described_array(value: Any, frozen: bool) -> str:
    return f"{value.dtype}{value.shape}" + (" (frozen)" if frozen else "")


def broadcast_model(comm: Communicator, model: Module) -> None:
    """Give every rank rank 0's parameters and state arrays."""
    for _, owner, attribute in model.named_arrays():
        value = getattr(owner, attribute)
        array = value.data if isinstance(value, Parameter) else value
        array[...] = broadcast(comm, array)
