"""Parameters laid end to end in one array, so that one message carries them and ranks can own even parts.

Lecture section: synchronous data parallelism; sharded server. Lesson: 06_data_parallel, by ``bucketed.py``.
Large parameters are cut and small ones share a part, so that parts differ by one element at most.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from minigrad.data import shares
from minigrad.device import Array, array_module, unflatten
from minigrad.tensor import Parameter


class Segment(NamedTuple):
    """The elements ``within`` parameter number ``n``, flattened, that are the slice ``place`` of a part."""

    n: int
    within: slice
    place: slice


class FlatLayout:
    """The layout of some parameters in ``parts`` slices; ValueError where they are of different dtypes."""

    def __init__(self, parameters: Sequence[Parameter], parts: int = 1):
        self.parameters = list(parameters)
        if len({p.dtype for p in self.parameters}) > 1:
            dtypes = ", ".join(sorted({str(p.dtype) for p in self.parameters}))
            raise ValueError(
                f"one message carries parameters of one dtype, got {dtypes}; use model.to(dtype=...)"
            )
        self.starts = list(accumulate((p.size for p in self.parameters), initial=0))
        self.size = self.starts[-1]
        self.parts = shares(self.size, parts)

    def zeros(self) -> Array:
        """A new array of this layout."""
        first = self.parameters[0].data
        return array_module(first).zeros(self.size, first.dtype)

    def views(self, buffer: Array) -> list[Array]:
        """The parameters' elements of ``buffer``, each in the shape of its parameter."""
        return unflatten(buffer, self.parameters)

    def weights(self) -> Array:
        """A copy of the parameters' values, as a new array of this layout."""
        return self.pack([p.data for p in self.parameters])

    def load(self, buffer: Array) -> None:
        """Copy the elements of ``buffer`` into the parameters."""
        for parameter, view in zip(self.parameters, self.views(buffer), strict=True):
            parameter.data[...] = view

    def pack(self, arrays: Sequence[Array | None]) -> Array:
        """A new array of this layout that holds ``arrays``, zeros for those that are None."""
        first = self.parameters[0].data
        buffer = array_module(first).empty(self.size, first.dtype)
        for view, array in zip(self.views(buffer), arrays, strict=True):
            view[...] = 0 if array is None else array
        return buffer

    def segments(self, rank: int) -> list[Segment]:
        """The elements of each parameter that are in the ``rank``-th part."""
        part, segments = self.parts[rank], []
        for n, (start, stop) in enumerate(pairwise(self.starts)):
            first, last = max(start, part.start), min(stop, part.stop)
            if first < last:
                within = slice(first - start, last - start)
                segments.append(Segment(n, within, slice(first - part.start, last - part.start)))
        return segments


def buckets(parameters: Sequence[Parameter], nbytes: int, first: int | None = None) -> list[list[Parameter]]:
    """The parameters, last first, in groups of one dtype of at most ``nbytes``, or of one that is larger.

    The first group has at most ``first`` bytes instead, where that is given. Backward reaches the last layers
    first, so their group is complete early (Li et al. 2020).
    """
    groups: list[list[Parameter]] = []
    room = 0
    for parameter in reversed(parameters):
        if not groups or parameter.data.nbytes > room or parameter.data.dtype != groups[-1][0].data.dtype:
            room = nbytes if groups or first is None else first
            groups.append([])
        groups[-1].append(parameter)
        room -= parameter.data.nbytes
    return groups
