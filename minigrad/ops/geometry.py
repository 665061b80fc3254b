"""Where a window stands on an image. Images are (N, C, H, W) to the reader and (N, H, W, C) in memory.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``conv.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from ..device import Array, array_module

Pair = int | tuple[int, int]


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
        (kh, kw), (sh, sw), (ph, pw), (dh, dw), _, (eh, ew) = self
        rows, columns = height + 2 * ph + eh - dh * (kh - 1) - 1, width + 2 * pw + ew - dw * (kw - 1) - 1
        return rows // sh + 1, columns // sw + 1

    def tap(self, i: int, j: int, rows: int, columns: int) -> tuple[slice, slice]:
        """What tap (i, j) of the kernel sees of the padded image, for ``rows`` x ``columns`` windows."""
        _, (sh, sw), _, (dh, dw), *_ = self
        top, left = i * dh, j * dw
        return slice(top, top + (rows - 1) * sh + 1, sh), slice(left, left + (columns - 1) * sw + 1, sw)

    def backward(self) -> Geometry:
        """The window of the input gradient at stride 1, a convolution of g with the kernel turned round.

        Negative padding cuts off: what the outermost windows saw was padding only.
        """
        (kh, kw), _, (ph, pw), (dh, dw), *_ = self
        return self._replace(padding=(dh * (kh - 1) - ph, dw * (kw - 1) - pw))


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


def pair(value: Pair, name: str, least: int) -> tuple[int, int]:
    """A setting for rows and columns, given as one number or two."""
    if type(value) is int and value >= least:
        return value, value
    both = value if np.iterable(value) else (value, value)
    if not are_integers(both, 2, least):
        raise ValueError(f"{name} must be one or two integers of at least {least}, got {value}")
    rows, columns = both
    return int(rows), int(columns)


def are_integers(values: Any, count: int, least: float) -> bool:
    """Whether ``values`` are ``count`` integers, NumPy's among them, of at least ``least``."""
    return (
        isinstance(values, (tuple, Sequence, np.ndarray))
        and len(values) == count
        and all([isinstance(v, (int, np.integer)) and v >= least for v in values])
    )


def check_windows_fit(size: tuple[int, int], geometry: Geometry) -> None:
    """Raise ValueError where images of this size have no window."""
    if min(geometry.output(*size)) < 1:
        raise ValueError(
            f"a window of {geometry.kernel} with dilation {geometry.dilation} does not fit into images of "
            f"{size} padded by {geometry.padding}; use a smaller kernel or more padding"
        )
