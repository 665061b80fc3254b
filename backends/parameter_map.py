"""Which rank holds which part of which parameter of a model that a backend has placed.

Lecture section: model parallelism.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from minigrad.module import Module
from minigrad.tensor import Parameter

from .comm.allgather_json import allgather_json
from .comm.communicator import Communicator
from .pictures.map_picture import Bounds, map_picture
from .placement import shards_of


@dataclass(frozen=True)
class ParameterMap:
    """``shapes`` of the whole parameters by name, and for each rank the ``parts`` that it holds, by name.

    A rank without a part of a parameter does not name it. Made by ``parameter_map``; a notebook shows it.
    """

    shapes: Mapping[str, tuple[int, ...]]
    parts: tuple[Mapping[str, Bounds], ...]

    def __repr__(self) -> str:
        return f"ParameterMap({len(self.shapes)} parameters on {len(self.parts)} ranks)"

    def _repr_svg_(self) -> str:
        """The picture that a notebook shows: a line for each parameter, with each rank's part of it."""
        return map_picture(self.shapes, self.parts)


def parameter_map(comm: Communicator, model: Module) -> ParameterMap:
    """The map of ``model``, as ``place`` of a backend on ``comm`` returned it: all ranks call together.

    It knows layers that are split (model parallelism), and layers that are on some ranks only (pipelines). Of
    data parallelism every rank has the whole model, also where ZeRO stores a part of it.
    """
    shards, mine = shards_of(model), {}
    for name, owner, attribute in model.named_arrays():
        value = getattr(owner, attribute)
        if isinstance(value, Parameter):
            bounds, shape = [(0, n) for n in value.shape], value.shape
            if (shard := shards.get((owner, attribute))) is not None:
                axis, part = shard.axis % len(shape), shard.local_slice
                bounds[axis], shape = (part.start, part.stop), shard.full_shape(shape)
            mine[name] = [list(shape), bounds]
    of_all = allgather_json(comm, mine)
    shapes = {name: tuple(shape) for parts in of_all for name, (shape, _) in parts.items()}
    parts = ({name: tuple(map(tuple, bounds)) for name, (_, bounds) in parts.items()} for parts in of_all)
    return ParameterMap(shapes, tuple(parts))
