"""A tensor of which each rank holds a part, and which part: what travels between layers that are split.

Lecture section: model parallelism. Lesson: 11_model_parallel.
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
from ..comm.protocol import Comm


@dataclass(frozen=True, eq=False)
class Cut:
    """One axis of an array, cut into a part for each rank of ``comm``.

    ``bounds`` are the parts' limits, rising from 0 to the axis's whole length: rank r holds bounds[r] to
    bounds[r + 1]. ``order``, where it is given, says which elements these are once all parts are joined.
    """

    axis: int
    comm: Comm
    bounds: tuple[int, ...]
    order: np.ndarray | None = None

    @property
    def whole(self) -> int:
        """The length of the uncut axis."""
        return self.bounds[-1]

    @property
    def sizes(self) -> list[int]:
        return [stop - start for start, stop in pairwise(self.bounds)]

    @property
    def mine(self) -> slice:
        """This rank's elements, where there is no ``order``."""
        return slice(self.bounds[self.comm.rank], self.bounds[self.comm.rank + 1])

    def part_of(self, x):
        """This rank's part of the whole array ``x``."""
        x = x if self.order is None else x.take(array_module(x).asarray(self.order), self.axis)
        return x[(slice(None),) * self.axis + (self.mine,)]

    def whole_of(self, part: np.ndarray) -> np.ndarray:
        """The array of which each rank holds a part; all ranks call."""
        whole = np.concatenate(allgather(self.comm, part), self.axis)
        return whole if self.order is None else whole.take(np.argsort(self.order), self.axis)

    def on(self, axis: int) -> Cut:
        """The same parts, of another axis."""
        return replace(self, axis=axis)

    def times(self, n: int) -> Cut:
        """The same parts where each element has become ``n`` consecutive ones."""
        bounds = tuple(n * bound for bound in self.bounds)
        order = None if self.order is None else (n * self.order[:, None] + np.arange(n)).reshape(-1)
        return replace(self, bounds=bounds, order=order)

    def same_as(self, other: Cut) -> bool:
        """Whether each rank holds the same by both."""
        if (self.axis, self.bounds) != (other.axis, other.bounds) or self.comm is not other.comm:
            return False
        if self.order is None or other.order is None:
            return self.order is other.order
        return bool((self.order == other.order).all())


def even_cut(axis: int, comm: Comm, n: int) -> Cut:
    """``n`` elements, in parts whose sizes differ by at most one."""
    return Cut(axis, comm, (0, *(share.stop for share in shares(n, comm.size))))


def matching(into: Cut | None, comm: Comm, n: int) -> Cut:
    """How ``n`` features (axis 1) are cut so that a layer before, whose features are cut as ``into``, fits.

    One channel may have become several consecutive features (Flatten). As even as can be without ``into``.
    """
    if into is None or n % into.whole:
        return even_cut(1, comm, n)
    return into.times(n // into.whole)


def as_it_lies(communicate: Callable[..., Tensor], x: Tensor, **settings: Any) -> Tensor:
    """``communicate(x, **settings)`` on images with their channels last, as they lie in memory.

    So what is sent is one piece of memory, and what comes back lies alike; the transposes are views.
    """
    if x.ndim != 4:
        return communicate(x, **settings)
    if "axis" in settings:
        settings["axis"] = (0, 3, 1, 2)[settings["axis"]]
    y = communicate(transpose(x, axes=(0, 2, 3, 1)), **settings)
    return transpose(y, axes=(0, 3, 1, 2))


@dataclass(frozen=True)
class Activation:
    """What a layer takes and gives: this rank's part ``x`` of a tensor, and along which axes it is cut.

    Without cuts ``x`` is the whole, the same on all ranks. The loss is one, computed alike on all ranks.
    """

    x: Tensor
    cuts: tuple[Cut, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """The whole tensor's."""
        whole = {cut.axis: cut.whole for cut in self.cuts}
        return tuple(whole.get(axis, n) for axis, n in enumerate(self.x.shape))

    def along(self, axis: int) -> Cut | None:
        """How ``axis`` is cut."""
        return next((cut for cut in self.cuts if cut.axis == axis), None)

    def gathered(self, axes: Sequence[int] | None = None) -> Activation:
        """The same tensor, whole again along ``axes`` (by default all): one all-gather for each cut."""
        x, left = self.x, []
        for cut in self.cuts:
            if axes is not None and cut.axis not in axes:
                left.append(cut)
                continue
            x = as_it_lies(differentiable.join_in, x, comm=cut.comm, axis=cut.axis)
            if cut.order is not None:
                back = np.argsort(cut.order)
                x = getitem(x, index=(slice(None),) * cut.axis + (array_module(x.data).asarray(back),))
        return Activation(x, tuple(left))

    def cut_as(self, cut: Cut) -> Activation:
        """The same tensor, cut as ``cut`` says and along no other axis; no message where it is so already.

        Raises ValueError where the axis has another length.
        """
        a = self.gathered([other.axis for other in self.cuts if other.axis != cut.axis])
        before = a.along(cut.axis)
        length = before.whole if before is not None else a.x.shape[cut.axis]
        if length != cut.whole:
            raise ValueError(
                f"this layer takes {cut.whole} channels or features, those before it give {length}; "
                "make the sizes agree"
            )
        return a if before is not None and before.same_as(cut) else a.gathered().split(cut)

    def split(self, cut: Cut) -> Activation:
        """This rank's part of a tensor that was whole along the cut's axis; no message forward."""
        if self.along(cut.axis) is not None:
            raise ValueError(f"axis {cut.axis} is cut already; gather it first")
        if cut.order is not None:
            raise ValueError("a tensor is cut in its own order")
        x = as_it_lies(differentiable.share_out, self.x, comm=cut.comm, axis=cut.axis, sizes=cut.sizes)
        return Activation(x, (*self.cuts, cut))
