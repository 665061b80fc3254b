"""A tensor that is split over ranks, as between the layers of a split model.

Lecture section: model parallelism. Lesson: 11_model_parallel. The names are those of PyTorch's DTensor: an
axis is a ``Shard``, a tensor without shards is replicated, and ``redistribute`` changes one into another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import pairwise

import numpy as np

from minigrad.data import shares
from minigrad.tensor import Tensor

from ...comm import differentiable
from ...comm.collectives import allgather
from ...comm.communicator import Communicator


@dataclass(frozen=True)
class Shard:
    """One axis of an array is split: rank r of ``comm`` holds the elements bounds[r] to bounds[r + 1].

    A negative ``axis`` counts from the last one, as -1 for the features of rows and of tokens. Shards are
    equal if every rank holds the same elements in both.
    """

    axis: int
    comm: Communicator
    bounds: tuple[int, ...]  # which rise from 0 to the length of the whole axis

    @property
    def length(self) -> int:
        """The length of the whole axis."""
        return self.bounds[-1]

    @property
    def sizes(self) -> list[int]:
        """The length of each rank's part."""
        return [stop - start for start, stop in pairwise(self.bounds)]

    @property
    def parts(self) -> int:
        """How many parts there are, of which each rank has one."""
        return self.comm.size

    @property
    def local_size(self) -> int:
        return self.sizes[self.comm.rank]

    @property
    def local_slice(self) -> slice:
        """This rank's part of the axis."""
        return slice(self.bounds[self.comm.rank], self.bounds[self.comm.rank + 1])

    def local_part(self, x):
        """This rank's part of the whole array ``x``."""
        return x[(slice(None),) * (self.axis % x.ndim) + (self.local_slice,)]

    def full_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The whole array's shape, where ``shape`` is that of any part."""
        return tuple(self.length if i == self.axis % len(shape) else n for i, n in enumerate(shape))

    def gather(self, part: np.ndarray) -> np.ndarray:
        """The whole array, from every rank's ``part``. Collective: every rank must call it."""
        return np.concatenate(allgather(self.comm, part), self.axis)

    def join_in(self, part: Tensor) -> Tensor:
        """The whole tensor, from every rank's ``part``; backward sends nothing."""
        return differentiable.in_channels_last(differentiable.join_in, part, comm=self.comm, axis=self.axis)

    def share_out(self, whole: Tensor) -> Tensor:
        """This rank's part of a tensor that all ranks hold; forward sends nothing."""
        settings = {"comm": self.comm, "axis": self.axis, "sizes": self.sizes}
        return differentiable.in_channels_last(differentiable.share_out, whole, **settings)

    def on_axis(self, axis: int) -> Shard:
        """An equal split of another axis."""
        return replace(self, axis=axis)

    def repeat(self, n: int) -> Shard:
        """This split, for an axis on which each element has become ``n`` consecutive ones."""
        return replace(self, bounds=tuple(n * bound for bound in self.bounds))


def even_shard(axis: int, comm: Communicator, n: int) -> Shard:
    """``n`` elements split into parts whose sizes differ by at most one."""
    return Shard(axis, comm, (0, *(share.stop for share in shares(n, comm.size))))


def matching_shard(in_sharding: Shard | None, comm: Communicator, n: int, axis: int = -1) -> Shard:
    """A split of ``n`` features, on ``axis``, like that of the features of the layer before, ``in_sharding``.

    One channel may have become several consecutive features (Flatten). Without ``in_sharding``, or where it
    does not divide the features, the split is even.
    """
    if in_sharding is None or n % in_sharding.length:
        return even_shard(axis, comm, n)
    return in_sharding.repeat(n // in_sharding.length).on_axis(axis)


@dataclass(frozen=True)
class ShardedTensor:
    """The input or output of a split layer: this rank's part, ``local``, and how each axis is split.

    Without ``shards`` the tensor is replicated: ``local`` is the whole, the same on all ranks. There is one
    loss, which all ranks compute alike.
    """

    local: Tensor
    shards: tuple[Shard, ...] = ()

    def __post_init__(self) -> None:
        """Count all axes from the first one."""
        n = self.local.ndim
        shards = tuple(s if s.axis >= 0 else s.on_axis(s.axis + n) for s in self.shards)
        object.__setattr__(self, "shards", shards)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the whole tensor."""
        return reduce(lambda shape, shard: shard.full_shape(shape), self.shards, self.local.shape)

    def shard_of(self, axis: int) -> Shard | None:
        """How ``axis`` is split; None where it is whole."""
        return next((shard for shard in self.shards if shard.axis == axis), None)

    def feature_shard(self) -> Shard | None:
        """How the features are split, axis 1 of images (N, C, H, W), else the last axis; None where whole.

        Axis 1 of (N, S, features) has tokens, whatever their number.
        """
        return self.shard_of(1 if self.local.ndim == 4 else self.local.ndim - 1)

    def gather(self, axes: Sequence[int] | None = None) -> ShardedTensor:
        """This tensor, whole along ``axes`` (None: along all): one all-gather for each shard."""
        gathered = [shard for shard in self.shards if axes is None or shard.axis in axes]
        x = reduce(lambda x, shard: shard.join_in(x), gathered, self.local)
        return ShardedTensor(x, tuple(shard for shard in self.shards if shard not in gathered))

    def redistribute(self, *shards: Shard) -> ShardedTensor:
        """This tensor, split by ``shards`` alone, ValueError where an axis has another length."""
        new = [shard.on_axis(shard.axis % self.local.ndim) for shard in shards]
        for shard in new:
            if (length := self.shape[shard.axis]) != shard.length:
                raise ValueError(
                    f"this layer takes {shard.length} channels or features, those before it give {length}; "
                    "make the sizes agree"
                )
        a = self.gather([mine.axis for mine in self.shards if mine not in new])
        return reduce(ShardedTensor.split, (shard for shard in new if a.shard_of(shard.axis) is None), a)

    def split(self, shard: Shard) -> ShardedTensor:
        """This rank's part of a tensor that is whole along the shard's axis; forward sends no message."""
        return ShardedTensor(shard.share_out(self.local), (*self.shards, shard))
