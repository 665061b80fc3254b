"""Which rows of an image a window's outputs look at, and how far these reach beyond the rows a rank has.

Lecture section: model parallelism in space. Lesson: 12_spatial. Everything is said of one axis, "rows"
here; columns are the same. A layer that is split over rows needs a few of its neighbours' before it can
compute its own: the halo.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Needed(NamedTuple):
    """The rows ``start`` to ``stop`` of an image, with so many rows of border before and after them."""

    start: int
    stop: int
    before: int = 0
    after: int = 0

    @property
    def border(self) -> int:
        return self.before + self.after

    @property
    def inside(self) -> Needed:
        """The same without the border."""
        return Needed(self.start, self.stop)

    @property
    def size(self) -> int:
        """Rows, with the border."""
        return self.stop - self.start + self.border


class Window(NamedTuple):
    """The window of a convolution or pooling, along one axis."""

    kernel: int
    stride: int = 1
    padding: int = 0
    dilation: int = 1

    @property
    def extent(self) -> int:
        """How many rows a window spans, those between its taps too."""
        return self.dilation * (self.kernel - 1) + 1

    @property
    def halo(self) -> tuple[int, int]:
        """Rows wanted from the left and the right neighbour, inside the image, where inputs begin at
        stride times the outputs: (padding, extent - stride - padding), neither below 0.
        """
        return max(0, self.padding), max(0, self.extent - self.stride - self.padding)

    def outputs(self, n: int) -> int:
        """How many windows stand on ``n`` rows."""
        return (n + 2 * self.padding - self.extent) // self.stride + 1

    def output_bounds(self, bounds: Sequence[int]) -> tuple[int, ...]:
        """Who computes which outputs: he who has the input row that is stride times the output's number.

        ``bounds`` are the limits of the ranks' input rows. What padding adds at the end is the last rank's.
        """
        count = self.outputs(bounds[-1])
        return (*(min(-(-row // self.stride), count) for row in bounds[:-1]), count)

    def needs(self, first: int, last: int, n: int) -> Needed:
        """What outputs ``first`` to ``last`` look at, of an image of ``n`` rows and the border around it."""
        if first >= last:
            return Needed(0, 0)
        start, stop = (
            first * self.stride - self.padding,
            (last - 1) * self.stride - self.padding + self.extent,
        )
        low = min(max(start, 0), n)
        high = max(min(stop, n), low)
        before = min(max(-start, 0), stop - start)
        return Needed(low, high, before, stop - start - before - (high - low))


def halo_of(owned: tuple[int, int], needed: Needed) -> tuple[int, int]:
    """How many of the needed rows lie before, and how many behind, those from owned[0] to owned[1]."""
    if needed.start >= needed.stop:
        return 0, 0
    return max(0, owned[0] - needed.start), max(0, needed.stop - owned[1])
