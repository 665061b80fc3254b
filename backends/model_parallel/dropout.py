"""Dropout on split activations: every rank finds the whole mask and uses its own part.

Lecture section: model parallelism by neurons. Lesson: 11_model_parallel. The ranks therefore drop what one
machine would drop, and all ranks drop the same elements of a replicated activation.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from minigrad import ops
from minigrad.nn import Dropout
from minigrad.random_mask import Mask

from .replicated import Elementwise
from .sharding import Shard, ShardedTensor


class ShardedDropout(Elementwise):
    """The serial layer's dropout: each rank uses the part of the mask that covers its activations."""

    layer: Dropout

    def sharded_forward(self, a: ShardedTensor) -> ShardedTensor:
        if not self.layer.training:
            return a
        mask = ShardedMask(self.layer.next_mask(), a.shards)
        return ShardedTensor(ops.dropout(a.local, p=self.layer.p, rng=mask), a.shards)


class ShardedMask(NamedTuple):
    """This rank's part of a mask."""

    whole: Mask
    shards: tuple[Shard, ...]

    def keep(self, shape: tuple[int, ...], p: float) -> np.ndarray:
        """As ``RandomMask.keep``, for this rank's part of an array, which has ``shape``."""
        lengths = {shard.axis: shard.length for shard in self.shards}
        keep = self.whole.keep(tuple(lengths.get(axis, n) for axis, n in enumerate(shape)), p)
        for shard in self.shards:
            keep = shard.local_part(keep)
        return keep
