"""Older versions of a stage's weights: a micro-batch goes back with the weights of its forward.

Lecture section: pipelining. Lesson: 13_pipeline, by ``asynchronous.py``. An update is written into copies
where older weights are still needed; tapes refer to the arrays of their forward, which do not change.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from minigrad.device import Array
from minigrad.tensor import Parameter


@dataclass(eq=False)
class Version:
    """The arrays of all of a stage's parameters after ``updates`` updates."""

    updates: int
    arrays: list[Array]


class WeightStash:
    """The versions of ``parameters`` that a stage needs; the parameters refer to the newest.

    A forward uses the version from ``delay`` updates ago, or the first. With ``copies`` False an update
    overwrites the weights of micro-batches in flight.
    """

    def __init__(self, parameters: Sequence[Parameter], *, delay: int = 0, copies: bool = True):
        self.parameters, self.copies = parameters, copies
        self.recent = deque([Version(0, [p.data for p in parameters])], maxlen=delay + 1)
        self.in_flight: deque[Version] = deque()  # one for each micro-batch, in their order

    @property
    def newest(self) -> Version:
        return self.recent[-1]

    @property
    def n_versions(self) -> int:
        """The number of versions in memory."""
        return len({id(version.arrays) for version in (*self.recent, *self.in_flight)})

    def forward(self) -> AbstractContextManager[Version]:
        """Let the parameters have the next micro-batch's version, which is kept for its backward."""
        self.in_flight.append(self.recent[0])
        return self.swapped_in(self.recent[0])

    def backward(self) -> AbstractContextManager[Version]:
        """Let the parameters have the version of the oldest micro-batch in flight, and end its flight."""
        return self.swapped_in(self.in_flight.popleft())

    def advance(self) -> None:
        """Begin a new version, whose arrays the optimizer may update in place where there is a gradient."""
        old, arrays = self.newest, self.newest.arrays
        needed = self.recent.maxlen != 1 or old in self.in_flight
        if needed and self.copies:
            pairs = zip(self.parameters, arrays, strict=True)
            arrays = [array if p.grad is None else array.copy() for p, array in pairs]
        self.recent.append(Version(old.updates + 1, arrays))
        self.point_at(arrays)

    @contextmanager
    def swapped_in(self, version: Version) -> Iterator[Version]:
        self.point_at(version.arrays)
        try:
            yield version
        finally:
            self.point_at(self.newest.arrays)

    def point_at(self, arrays: list[Array]) -> None:
        for parameter, array in zip(self.parameters, arrays, strict=True):
            parameter.data = array
