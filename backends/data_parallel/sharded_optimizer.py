"""Each rank holds the optimizer's state of its elements only; here the parts come together, and apart again.

Lecture section: data lifetimes. Lesson: 06_data_parallel, by ``sharded_state.py``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from minigrad.device import array_module
from minigrad.module import Module
from minigrad.optim import Optimizer
from minigrad.placed_state import PlacedState, Values, host_copy, is_number
from minigrad.tensor import Parameter

from ..comm.collectives import allgather


class Elements(NamedTuple):
    """The elements ``within`` a flattened parameter."""

    parameter: Parameter
    within: slice


class ShardedOptimizer(PlacedState):
    """The state of a model whose optimizer has one for each of this rank's elements, in their order."""

    def owned_by(self, rank: int) -> Iterator[Elements]:
        """The elements of ``rank``, in the order in which it passes them to its optimizer."""
        raise NotImplementedError(f"{type(self).__name__} needs the method owned_by")

    def trained_by(self, optimizer: Optimizer, rank: int) -> list[Elements]:
        """Those of them that the optimizer trains."""
        trained = set(optimizer.parameters)
        return [elements for elements in self.owned_by(rank) if elements.parameter in trained]

    def optimizer_values(self, model: Module, optimizer: Optimizer, key: str) -> Values:
        """From the parts of all ranks: an all-gather of what there is, and one of the arrays."""
        n = len(self.trained_by(optimizer, self.backend.rank))
        mine = [host_copy(state.get(key)) for state in optimizer.state[:n]]
        mine += [None] * (n - len(mine))  # before the first step
        arrays = [value for value in mine if value is not None and value.ndim]
        content = np.concatenate([np.zeros(0, np.uint8), *(np.ravel(a).view(np.uint8) for a in arrays)])
        words = [None if v is None else [v.dtype.str, v.ndim, v.ndim or v.item()] for v in mine]
        text = np.frombuffer(json.dumps(words).encode(), np.uint8)
        values: dict[Parameter, Any] = {}
        for rank, (words, parts) in enumerate(
            zip(allgather(self.backend.comm, text), allgather(self.backend.comm, content), strict=True)
        ):
            start = 0
            owned = self.trained_by(optimizer, rank)
            for (parameter, within), word in zip(owned, json.loads(bytes(words)), strict=True):
                if word is None:
                    continue
                dtype, ndim, number = np.dtype(word[0]), word[1], word[2]
                if not ndim:
                    values[parameter] = np.array(number, dtype)
                    continue
                whole = values.setdefault(parameter, np.zeros(parameter.shape, dtype))
                stop = start + (within.stop - within.start) * dtype.itemsize
                whole.reshape(-1)[within] = parts[start:stop].view(dtype)
                start = stop
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
