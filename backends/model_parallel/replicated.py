"""Layers that every rank computes whole, and layers that take a split input as they take a whole one.

Lecture section: model parallelism. Lesson: 11_model_parallel, by ``batch_norm.py``.
"""

from __future__ import annotations

from collections.abc import Iterator

from minigrad.module import Module

from ..comm.communicator import Communicator
from .layer import ShardedLayer
from .sharding import Shard, ShardedTensor


class Replicated(ShardedLayer):
    """A layer that every rank computes whole, on the whole input."""

    def __init__(self, layer: Module, comm: Communicator | None = None, in_sharding: Shard | None = None):
        super().__init__()
        self.layer = layer

    def named_arrays(self, prefix: str = "") -> Iterator[tuple[str, Module, str]]:
        return self.layer.named_arrays(prefix)  # the serial names

    def sharded_forward(self, a: ShardedTensor) -> ShardedTensor:
        return ShardedTensor(self.layer(a.gather().local))


class Elementwise(Replicated):
    """A layer that acts on each element alone, and therefore on a split input as on a whole one."""

    def __init__(self, layer: Module, comm: Communicator | None = None, in_sharding: Shard | None = None):
        super().__init__(layer)
        self.out_sharding = in_sharding

    def sharded_forward(self, a: ShardedTensor) -> ShardedTensor:
        return ShardedTensor(self.layer(a.local), a.shards)
