"""The receptive field of a window: the input rows its outputs depend on, and which of them are a halo.

Lecture section: model parallelism in space. Lesson: 12_spatial. This file speaks of rows; columns are treated
in the same way. A rank that computes some rows of a layer's output needs a few input rows of its neighbours:
the halo.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from minigrad.ops.geometry import Geometry

ROWS, COLUMNS = 2, 3  # axes of (N, C, H, W)


class RowRange(NamedTuple):
    """The rows ``start`` to ``stop`` of an image, and the rows of border ``before`` and ``after`` them."""

    start: int
    stop: int
    before: int = 0
    after: int = 0

    @property
    def border(self) -> int:
        return self.before + self.after

    @property
    def inside(self) -> RowRange:
        """The rows without the border."""
        return RowRange(self.start, self.stop)

    @property
    def size(self) -> int:
        """The number of rows, with the border."""
        return self.stop - self.start + self.border


class Window(NamedTuple):
    """The window of a convolution or pooling, along one axis."""

    kernel: int
    stride: int = 1
    padding: int = 0
    dilation: int = 1

    @property
    def extent(self) -> int:
        """The number of rows that a window spans, with those between its taps."""
        return self.dilation * (self.kernel - 1) + 1

    @property
    def halo(self) -> tuple[int, int]:
        """Rows needed from the neighbours before and after, inside the image: never below 0.

        A rank whose first output is o has its first input at stride * o.
        """
        return max(0, self.padding), max(0, self.extent - self.stride - self.padding)

    def outputs(self, n: int) -> int:
        """The number of windows that fit on ``n`` rows."""
        return (n + 2 * self.padding - self.extent) // self.stride + 1

    def output_bounds(self, bounds: Sequence[int]) -> tuple[int, ...]:
        """The ranks' output rows: who has input row stride * o has output row o, the last rank the rest."""
        count = self.outputs(bounds[-1])
        return (*(min(-(-row // self.stride), count) for row in bounds[:-1]), count)

    def receptive_field(self, first: int, last: int, n: int) -> RowRange:
        """The input rows of outputs ``first`` to ``last``, in an image of ``n`` rows and its border."""
        if first >= last:
            return RowRange(0, 0)
        start = first * self.stride - self.padding
        stop = (last - 1) * self.stride - self.padding + self.extent
        low = min(max(start, 0), n)
        high = max(min(stop, n), low)
        before = min(max(-start, 0), stop - start)
        return RowRange(low, high, before, stop - start - before - (high - low))


def window_along(axis: int, geometry: Geometry) -> Window:
    """The window along one axis."""
    return Window(*(pair[axis - ROWS] for pair in geometry[:4]))
