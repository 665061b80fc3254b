"""Dropout on split activations: every rank draws the whole mask and uses its own part.

Lecture section: model parallelism by neurons. Lesson: 11_model_parallel. The ranks therefore drop what one
machine would drop, and all ranks drop the same elements of a replicated activation.
"""

from __future__ import annotations

from typing import cast

import numpy as np

from minigrad.nn import Dropout

from .replicated import Elementwise
from .sharding import Shard, ShardedTensor


class ShardedDropout(Elementwise):
    """The serial layer's dropout: each rank uses the part of the mask that covers its activations.

    The random generators of all ranks must start in the same state (``share_state``); they then stay equal.
    """

    layer: Dropout

    def sharded_forward(self, a: ShardedTensor) -> ShardedTensor:
        draws = cast(np.random.Generator, ShardedGenerator(self.layer.rng, a.shards))
        return ShardedTensor(Dropout(self.layer.p, rng=draws).train(self.layer.training)(a.local), a.shards)


class ShardedGenerator:
    """Draws the numbers of a whole array and returns this rank's part."""

    def __init__(self, rng: np.random.Generator, shards: tuple[Shard, ...]):
        self.rng, self.shards = rng, shards

    def random(self, shape: tuple[int, ...]) -> np.ndarray:
        whole = list(shape)
        for shard in self.shards:
            whole[shard.axis] = shard.length
        numbers = self.rng.random(whole)
        for shard in self.shards:
            numbers = shard.local_part(numbers)
        return numbers
