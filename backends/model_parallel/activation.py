"""A tensor of which each rank holds a part, and which part: what travels between layers that are split.

Lecture section: model parallelism. Lesson: 11_model_parallel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from minigrad.data import shares
from minigrad.device import array_module
from minigrad.ops import getitem
from minigrad.tensor import Tensor

from ..comm import adjoint
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
        x = x if self.order is None else x.take(self.order, self.axis)
        return x[(slice(None),) * self.axis + (self.mine,)]


def even_cut(axis: int, comm: Comm, n: int) -> Cut:
    """``n`` elements, in parts whose sizes differ by at most one."""
    return Cut(axis, comm, (0, *(share.stop for share in shares(n, comm.size))))


@dataclass(frozen=True)
class Activation:
    """What a layer takes and gives: this rank's part ``x`` of a tensor, and along which axes it is cut.

    Without cuts ``x`` is the whole, the same on all ranks. The loss is one, computed alike on all ranks.
    """

    x: Tensor
    cuts: tuple[Cut, ...] = ()

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
            x = adjoint.join_in(x, comm=cut.comm, axis=cut.axis)
            if cut.order is not None:
                back = np.argsort(cut.order)
                x = getitem(x, index=(slice(None),) * cut.axis + (array_module(x.data).asarray(back),))
        return Activation(x, tuple(left))

    def split(self, cut: Cut) -> Activation:
        """This rank's part of a tensor that was whole along the cut's axis; no message forward."""
        if self.along(cut.axis) is not None:
            raise ValueError(f"axis {cut.axis} is cut already; gather it first")
        if cut.order is not None:
            raise ValueError("a tensor is cut in its own order")
        x = adjoint.share_out(self.x, comm=cut.comm, axis=cut.axis, sizes=cut.sizes)
        return Activation(x, (*self.cuts, cut))
