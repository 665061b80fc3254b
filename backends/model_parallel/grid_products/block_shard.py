"""A split of two axes of a matrix: each rank of a grid has one block.

Lecture section: data and model parallelism together. Lesson: 14_hybrid, by ``linear.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..layers.sharding import Shard


@dataclass(frozen=True, eq=False)
class BlockShard(Shard):
    """A split of one axis over a group of ranks, whose parts are split by ``inner``, along another axis."""

    inner: Shard

    @property
    def parts(self) -> int:
        return super().parts * self.inner.parts

    def local_part(self, x):
        return self.inner.local_part(super().local_part(x))

    def gather(self, part: np.ndarray) -> np.ndarray:
        return super().gather(self.inner.gather(part))

    def full_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        return super().full_shape(self.inner.full_shape(shape))
