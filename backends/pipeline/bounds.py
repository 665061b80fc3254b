"""Where a model is cut into the stages of a pipeline: as asked for, by bytes, or by measured time.

Lecture section: pipelining. Lesson: 13_pipeline. Stage s is the layers from ``bounds[s]`` to
``bounds[s + 1]``.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from minigrad.data import Batch
from minigrad.device import array_module
from minigrad.module import Sequential

from ..comm.collectives import broadcast
from ..comm.protocol import Comm
from ..model_parallel.layer import whole_nbytes
from .holders import Layers
from .partition import costs_by_time, optimal, optimal_before
from .schedule import Timetable


def check_bounds(table: Timetable, bounds: Sequence[int] | str, layers: int) -> None:
    """Raise ValueError unless every stage can have one of so many layers, and the bounds give it one."""
    stages = table.stages
    if stages > layers:
        raise ValueError(
            f"{stages} stages ({table.ranks} ranks, chunks on each: {table.chunks}) cannot each have "
            f"one of the model's {layers} layers; take at most {layers} stages"
        )
    if isinstance(bounds, str):
        if bounds not in ("bytes", "time"):
            raise ValueError(f'bounds are "bytes", "time" or numbers, got {bounds!r}')
    elif [*bounds[:1], *bounds[-1:], len(bounds)] != [0, layers, stages + 1] or any(
        a >= b for a, b in pairwise(bounds)
    ):
        raise ValueError(
            f"the bounds of {stages} stages are {stages + 1} numbers that rise from 0 to the {layers} "
            f"layers, got {bounds}"
        )


def bounds_by_bytes(model: Layers, stages: int) -> tuple[int, ...]:
    """The largest stage is as small as can be; each has parameters, if there are layers enough that do."""
    sizes = [whole_nbytes(layer) for layer in model.layers]
    held = [i for i, size in enumerate(sizes) if size]  # the others go with the one before
    places = held[1:] if len(held) >= stages else range(len(sizes))
    return tuple(optimal_before(sizes, places, stages))


def bounds_by_time(comm: Comm, model: Sequential, stages: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The slowest stage is as fast as can be, as rank 0 measures the layers with inputs of this shape."""
    costs = np.zeros(len(model.layers))
    if comm.rank == 0:
        parameter = next(iter(model.parameters()))
        xp = array_module(parameter.data)
        x = xp.asarray(np.random.default_rng(0).random(shape), dtype=parameter.dtype)
        costs[:] = costs_by_time(model, Batch(x, xp.zeros(len(x), dtype=int)))
    return tuple(optimal([float(cost) for cost in broadcast(comm, costs)], stages))
