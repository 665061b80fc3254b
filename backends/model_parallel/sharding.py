"""A tensor that is split over ranks, as between the layers of a split model.

Lecture section: model parallelism. Lesson: 11_model_parallel. The names are those of PyTorch's DTensor: an
axis is a ``Shard``, a tensor without shards is replicated, and ``redistribute`` changes one into another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from minigrad.data import shares
from minigrad.device import array_module
from minigrad.ops import getitem, transpose
from minigrad.tensor import Tensor

from ..comm import differentiable
from ..comm.collectives import allgather
from ..comm.communicator import Communicator


@dataclass(frozen=True, eq=False)
class Shard:
    """One axis of an array is split: rank r of ``comm`` holds the elements bounds[r] to bounds[r + 1].

    The bounds rise from 0 to the length of the whole axis. ``order``, if it is not None, has the index in the
    whole array of each element, in the order in which the ranks hold them.
    """

    axis: int
    comm: Communicator
    bounds: tuple[int, ...]
    order: np.ndarray | None = None

    @property
    def length(self) -> int:
        """The length of the whole axis."""
        return self.bounds[-1]

    @property
    def sizes(self) -> list[int]:
        """The length of each rank's part."""
        return [stop - start for start, stop in pairwise(self.bounds)]

    @property
    def local_size(self) -> int:
        """The length of this rank's part."""
        return self.sizes[self.comm.rank]

    @property
    def local_slice(self) -> slice:
        """This rank's part of an axis, if there is no ``order``."""
        return slice(self.bounds[self.comm.rank], self.bounds[self.comm.rank + 1])

    def local_part(self, x):
        """This rank's part of the whole array ``x``."""
        x = x if self.order is None else x.take(array_module(x).asarray(self.order), self.axis)
        return x[(slice(None),) * self.axis + (self.local_slice,)]

    def gather(self, part: np.ndarray) -> np.ndarray:
        """The whole array, from every rank's ``part``. Collective: every rank must call it."""
        whole = np.concatenate(allgather(self.comm, part), self.axis)
        return whole if self.order is None else whole.take(np.argsort(self.order), self.axis)

    def on_axis(self, axis: int) -> Shard:
        """The same split of another axis."""
        return replace(self, axis=axis)

    def repeat(self, n: int) -> Shard:
        """The same split of an axis on which each element has become ``n`` consecutive ones."""
        bounds = tuple(n * bound for bound in self.bounds)
        order = None if self.order is None else (n * self.order[:, None] + np.arange(n)).reshape(-1)
        return replace(self, bounds=bounds, order=order)

    def same_as(self, other: Shard) -> bool:
        """Whether every rank holds the same elements in both."""
        same_bounds = (self.axis, self.comm, self.bounds) == (other.axis, other.comm, other.bounds)
        return same_bounds and np.array_equal(self.order, other.order)  # pyright: ignore


def even_shard(axis: int, comm: Communicator, n: int) -> Shard:
    """``n`` elements split into parts whose sizes differ by at most one."""
    return Shard(axis, comm, (0, *(share.stop for share in shares(n, comm.size))))


def matching_shard(in_sharding: Shard | None, comm: Communicator, n: int) -> Shard:
    """A split of ``n`` features (axis 1) like that of the layer before, ``in_sharding``.

    One channel may have become several consecutive features (Flatten). Without ``in_sharding``, or where it
    does not divide the features, the split is even.
    """
    if in_sharding is None or n % in_sharding.length:
        return even_shard(1, comm, n)
    return in_sharding.repeat(n // in_sharding.length)


def in_channels_last(communicate: Callable[..., Tensor], x: Tensor, **settings: Any) -> Tensor:
    """``communicate(x, **settings)``, where images are sent with the channels last, as they are in memory.

    A message is then one contiguous block, and the result has the same memory order. Transposes are views.
    """
    if x.ndim != 4:
        return communicate(x, **settings)
    if "axis" in settings:
        settings["axis"] = (0, 3, 1, 2)[settings["axis"]]
    y = communicate(transpose(x, axes=(0, 2, 3, 1)), **settings)
    return transpose(y, axes=(0, 3, 1, 2))


@dataclass(frozen=True)
class ShardedTensor:
    """The input or output of a split layer: this rank's part, ``local``, and how each axis is split.

    Without ``shards`` the tensor is replicated: ``local`` is the whole, the same on all ranks. There is one
    loss, which all ranks compute alike.
    """

    local: Tensor
    shards: tuple[Shard, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the whole tensor."""
        lengths = {shard.axis: shard.length for shard in self.shards}
        return tuple(lengths.get(axis, n) for axis, n in enumerate(self.local.shape))

    def shard_of(self, axis: int) -> Shard | None:
        """How ``axis`` is split; None where it is whole."""
        return next((shard for shard in self.shards if shard.axis == axis), None)

    def gather(self, axes: Sequence[int] | None = None) -> ShardedTensor:
        """The same tensor, whole along ``axes`` (None: along all): one all-gather for each shard."""
        x, rest = self.local, []
        for shard in self.shards:
            if axes is not None and shard.axis not in axes:
                rest.append(shard)
                continue
            x = in_channels_last(differentiable.join_in, x, comm=shard.comm, axis=shard.axis)
            if shard.order is not None:
                back = array_module(x.data).asarray(np.argsort(shard.order))
                x = getitem(x, index=(slice(None),) * shard.axis + (back,))
        return ShardedTensor(x, tuple(rest))

    def redistribute(self, shard: Shard) -> ShardedTensor:
        """The same tensor, split by ``shard`` and along no other axis; no message if it is so already.

        Raises ValueError where the axis has another length.
        """
        a = self.gather([other.axis for other in self.shards if other.axis != shard.axis])
        before, length = a.shard_of(shard.axis), a.shape[shard.axis]
        if length != shard.length:
            raise ValueError(
                f"this layer takes {shard.length} channels or features, those before it give {length}; "
                "make the sizes agree"
            )
        return a if before is not None and before.same_as(shard) else a.gather().split(shard)

    def split(self, shard: Shard) -> ShardedTensor:
        """This rank's part of a tensor that is whole along the shard's axis; forward sends no message."""
        if shard.order is not None:
            raise ValueError("a tensor can only be split in its own order")
        settings = {"comm": shard.comm, "axis": shard.axis, "sizes": shard.sizes}
        part = in_channels_last(differentiable.share_out, self.local, **settings)
        return ShardedTensor(part, (*self.shards, shard))
