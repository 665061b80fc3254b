"""Each rank holds the optimizer's state of its elements only; here the parts come together, and apart again.

Lecture section: data lifetimes. Lesson: 06_data_parallel, by ``sharded.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from minigrad.device import array_module
from minigrad.module import Module
from minigrad.optim import Optimizer
from minigrad.placed_state import PlacedState, Values, host_copy, is_number
from minigrad.tensor import Parameter

from ..placement import all_gather_named

Elements = tuple[Parameter, slice]
"""A parameter, and which of its elements, flattened."""


class ShardedOptimizer(PlacedState):
    """The state of a model whose optimizer has one for each of this rank's elements, in their order."""

    def owned_by(self, rank: int) -> Iterator[Elements]:
        """The elements of ``rank``, in the order in which it passes them to its optimizer."""
        raise NotImplementedError(f"{type(self).__name__} needs the method owned_by")

    def trained_by(self, optimizer: Optimizer, rank: int) -> list[Elements]:
        """The elements of ``rank`` that the optimizer trains."""
        trained = set(optimizer.parameters)
        return [(parameter, within) for parameter, within in self.owned_by(rank) if parameter in trained]

    def optimizer_values(self, model: Module, optimizer: Optimizer, key: str) -> Values:
        """From the parts of all ranks: a broadcast of each."""
        rank, comm = self.backend.rank, self.backend.comm
        mine = zip(self.trained_by(optimizer, rank), optimizer.state, strict=False)  # no state before a step
        parts = {f"{rank} {i}": host_copy(state.get(key)) for i, (_, state) in enumerate(mine)}
        parts = all_gather_named(comm, parts)
        values: dict[Parameter, np.ndarray] = {}
        for rank in range(comm.size):
            for i, (parameter, within) in enumerate(self.trained_by(optimizer, rank)):
                part = parts.get(f"{rank} {i}")
                if part is not None and part.ndim:
                    whole = values.setdefault(parameter, np.zeros(parameter.shape, part.dtype))
                    whole.reshape(-1)[within] = part
                elif part is not None:
                    values[parameter] = part  # a number
        return {name: values.get(parameter) for name, parameter in model.named_parameters().items()}

    def set_optimizer_values(self, model: Module, optimizer: Optimizer, values: dict[str, Values]) -> None:
        names = {parameter: name for name, parameter in model.named_parameters().items()}
        optimizer.state = []
        for parameter, within in self.trained_by(optimizer, self.backend.rank):
            state: dict[str, Any] = {}
            for key, of_key in values.items():
                if (value := of_key.get(names[parameter])) is not None:
                    xp, number = array_module(parameter.data), is_number(value, parameter.data)
                    state[key] = value.item() if number else xp.array(np.ravel(value)[within])
            optimizer.state.append(state)
