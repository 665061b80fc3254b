"""Layers one behind the other, each whole or split: what comes of a ``Sequential``.

Lecture section: model parallelism. Lesson: 11_model_parallel.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minigrad.backend import Values
from minigrad.module import Module

from ..comm.collectives import broadcast
from ..comm.protocol import Comm
from .activation import Activation
from .layer import SplitLayer


class Chain(SplitLayer):
    """The layers of a Sequential, by its names; what is cut stays so from layer to layer."""

    def __init__(self, layers: list[SplitLayer]):
        super().__init__()
        self.layers = layers
        self.out = layers[-1].out if layers else None

    def children(self) -> dict[str, Module]:
        return {str(i): layer for i, layer in enumerate(self.layers)}

    def split_forward(self, a: Activation) -> Activation:
        for i, layer in enumerate(self.layers):
            try:
                a = layer.split_forward(a)
            except (ValueError, TypeError) as error:
                error.args = (f"layer {i}, {error}",)
                raise
        return a

    def describe(self) -> str:
        return ", ".join(layer.in_one_line() for layer in self.layers)


class Elsewhere(SplitLayer):
    """Stands in the place of a layer that another rank holds, so that names stay; gives what it takes."""

    def forward(self, x: Any) -> Any:
        return x  # also what is no tensor

    def split_forward(self, a: Activation) -> Activation:
        return a


def joined_over(comm: Comm, values: Values) -> Values:
    """The arrays of all ranks, by name; all ranks call."""
    found: Values = {}
    for rank in range(comm.size):
        here = values if rank == comm.rank else {}
        text = "\n".join(name + "?" * (value is None) for name, value in here.items())
        sent = broadcast(comm, np.frombuffer(text.encode(), np.uint8), rank)
        for name in bytes(sent).decode().split():
            there = None if name.endswith("?") else broadcast(comm, here.get(name, np.zeros(0)), rank)
            found[name.rstrip("?")] = there
    return found
