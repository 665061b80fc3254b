"""Layers in order, between which tensors stay split.

Lecture section: model parallelism. Lesson: 11_model_parallel, by ``model_parallel.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from minigrad.forward_pass import current_path
from minigrad.module import Sequential

from .layer import ShardedLayer
from .sharding import ShardedTensor


class ShardedSequential(ShardedLayer, Sequential):
    """The layers of a Sequential under its names; the tensors between them stay split."""

    def __init__(self, layers: list[ShardedLayer]):
        super().__init__()
        self.layers = list(layers)
        self.out_sharding = layers[-1].out_sharding if layers else None
        self.splits_tokens = bool(layers) and layers[-1].splits_tokens

    def sharded_forward(self, a: ShardedTensor) -> ShardedTensor:
        path = current_path()
        for i, layer in enumerate(self.layers):
            path.append(i)
            with named_in_errors(i):
                a = layer.sharded_forward(a)
            path.pop()
        return a


@contextmanager
def named_in_errors(layer: int | str) -> Iterator[None]:
    """Put the name of the layer in front of the message of an error, as a Sequential does."""
    try:
        yield
    except (ValueError, TypeError) as error:
        error.args = (f"layer {layer}, {error}",)
        raise
