"""Windows on images, which are (N, C, H, W) to the reader and (N, H, W, C) in memory.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``conv.py``.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from ..device import Array, array_module


class Geometry(NamedTuple):
    """A window on images: pairs for rows and columns, and the number of groups of channels.

    ``extra`` is border that images get only below and on the right, besides ``padding``.
    """

    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    groups: int = 1
    extra: tuple[int, int] = (0, 0)

    @property
    def extent(self) -> tuple[int, int]:
        """How many rows and columns a window spans, with those between its taps."""
        rows, columns = (d * (k - 1) + 1 for d, k in zip(self.dilation, self.kernel, strict=True))
        return rows, columns

    @lru_cache(maxsize=1024)  # noqa: B019  (a convolution asks six times, of a network's few sizes)
    def output(self, height: int, width: int) -> tuple[int, int]:
        """Windows per axis: floor((size + 2 padding + extra - extent) / stride) + 1."""
        axes = zip((height, width), self.padding, self.extra, self.extent, self.stride, strict=True)
        rows, columns = ((n + 2 * p + more - extent) // step + 1 for n, p, more, extent, step in axes)
        return rows, columns

    def places(self, height: int, width: int) -> list[tuple[slice, ...]]:
        """For each tap, in reading order, its place in all windows on padded images (N, H, W, C)."""
        axes = zip(self.kernel, self.output(height, width), self.stride, self.dilation, strict=True)
        rows, columns = (
            [slice(i * apart, i * apart + (count - 1) * step + 1, step) for i in range(kernel)]
            for kernel, count, step, apart in axes
        )
        return [(slice(None), row, column) for row in rows for column in columns]

    def backward(self) -> Geometry:
        """The window of the input gradient at stride 1, a convolution of g with the kernel turned round.

        Negative padding cuts off: what the outermost windows saw was padding only.
        """
        (height, width), (ph, pw) = self.extent, self.padding
        return self._replace(padding=(height - 1 - ph, width - 1 - pw))


def taps(x: Array, geometry: Geometry, border: float = 0) -> list[Array]:
    """For each tap, in reading order, what it sees in all windows on images x: (N, H', W', C) views."""
    padded = bordered(x, geometry, border)
    return [padded[place] for place in geometry.places(*x.shape[1:3])]


def add_at_taps(images: Array, parts: Iterable[Array], geometry: Geometry) -> Array:
    """Images plus the part of each tap where it sees them, the transpose of ``taps``; writes into them."""
    (ph, pw), (_, height, width, _) = geometry.padding, images.shape
    padded = bordered(images, geometry)
    for place, part in zip(geometry.places(height, width), parts, strict=True):
        padded[place] += part
    return padded[:, ph : ph + height, pw : pw + width]


def bordered(x: Array, geometry: Geometry, value: float = 0) -> Array:
    """(N, H, W, C) images with all the border that windows see, full of ``value``."""
    (ph, pw), (below, right) = geometry.padding, geometry.extra
    return with_border(x, (ph, pw), (ph + below, pw + right), value)


def with_border(x: Array, before: tuple[int, int], after: tuple[int, int], value: float = 0) -> Array:
    """(N, H, W, C) images with more rows and columns ``before`` and ``after`` them, full of ``value``."""
    if not any(before + after):
        return x
    (top, left), (bottom, right), (n, height, width, channels) = before, after, x.shape
    larger = array_module(x).zeros((n, top + height + bottom, left + width + right, channels), x.dtype)
    if value:
        larger.fill(value)
    larger[:, top : top + height, left : left + width] = x
    return larger


def check_windows_fit(size: tuple[int, int], geometry: Geometry) -> None:
    """Raise ValueError where images of this size have no window."""
    if min(geometry.output(*size)) < 1:
        raise ValueError(
            f"a window of {geometry.kernel} with dilation {geometry.dilation} does not fit into images of "
            f"{size} padded by {geometry.padding}; use a smaller kernel or more padding"
        )
