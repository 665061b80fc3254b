"""The features of flattened images that are split into tiles: a rank's features are not consecutive.

Lecture section: model parallelism in space. Lesson: 12_spatial, by ``layers.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from minigrad.device import array_module
from minigrad.ops import getitem
from minigrad.tensor import Tensor

from ..layers.sharding import Shard


@dataclass(frozen=True, eq=False)
class TiledFeatures(Shard):
    """A split whose elements the ranks hold in another order than the whole array."""

    order: np.ndarray  # by position on the ranks, one after the other: the index in the whole array

    def local_part(self, x):
        return super().local_part(x.take(array_module(x).asarray(self.order), self.axis))

    def gather(self, part: np.ndarray) -> np.ndarray:
        return super().gather(part).take(np.argsort(self.order), self.axis)

    def join_in(self, part: Tensor) -> Tensor:
        whole = super().join_in(part)
        back = array_module(whole.data).asarray(np.argsort(self.order))
        return getitem(whole, index=(slice(None),) * self.axis + (back,))

    def share_out(self, whole: Tensor) -> Tensor:
        raise ValueError("a tensor can only be split in its own order")

    def repeat(self, n: int) -> TiledFeatures:
        order = (n * self.order[:, None] + np.arange(n)).reshape(-1)
        return replace(self, bounds=tuple(n * bound for bound in self.bounds), order=order)

    def __eq__(self, other: object) -> bool:
        is_tiled = isinstance(other, TiledFeatures)
        return is_tiled and super().__eq__(other) and np.array_equal(self.order, other.order)
