"""The image gradient of a convolution with a stride, as convolutions without one.

Image rows that are a stride apart see the same kernel rows, and so do its columns. Such a phase
of the image is a convolution at stride 1, of the gradient with its part of the kernel turned round (the
"sub-pixel" form of Shi et al., "Is the deconvolution layer the same as a convolutional layer?", 2016).
Lecture section: back-propagation. Lesson: 02_backpropagation, by ``fast/im2col.py``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product
from typing import NamedTuple

from ...device import Array, array_module
from ..geometry import Geometry

Correlate = Callable[[Array, Array, Geometry], Array]


class Phase(NamedTuple):
    """Every ``stride``-th row of the image, and what it needs for its gradient; or every such column."""

    places: slice  # in the image
    taps: slice  # of the kernel
    start: int  # the first row of the gradient that it sees, which may be outside
    stop: int  # behind the last
    dilation: int


def sum_of_phases(
    correlate: Correlate, g: Array, w: Array, geometry: Geometry, shape: tuple[int, ...]
) -> Array:
    """The gradient of images of ``shape`` (N, H, W, C) from g (N, H', W', F) and w (F, C / groups, kh, kw).

    ``correlate(g, w, geometry)`` is the convolution of g with w turned round.
    """
    _, height, width, channels = shape
    rows, columns = phases(geometry, 0, height), phases(geometry, 1, width)
    (top, bottom), (left, right) = span(rows), span(columns)
    larger = cut_out(g, (top, bottom), (left, right))  # with all padding: phases are views
    d = array_module(g).empty((len(g), height, width, channels), g.dtype)
    for row, column in product(rows, columns):
        part = w[:, :, row.taps, column.taps]
        plain = Geometry(part.shape[2:], (1, 1), (0, 0), (row.dilation, column.dilation), geometry.groups)
        if part.size:
            gradient = larger[:, row.start - top : row.stop - top, column.start - left : column.stop - left]
            d[:, row.places, column.places] = correlate(gradient, part, plain)
        else:
            d[:, row.places, column.places] = 0
    return d


def span(phases: list[Phase]) -> tuple[int, int]:
    """The first row that a phase sees, and behind the last."""
    starts, stops = [phase.start for phase in phases], [phase.stop for phase in phases]
    return min(starts, default=0), max(stops, default=0)


def phases(geometry: Geometry, axis: int, size: int) -> list[Phase]:
    """All phases of an image's rows (``axis`` 0) or columns (1), of which there are ``size``."""
    kernel, stride, padding, dilation = (setting[axis] for setting in geometry[:4])
    apart = stride // math.gcd(stride, dilation)  # from one tap of a phase to its next
    result = []
    for first in range(min(stride, size)):
        above, remainder = divmod(first + padding, stride)
        places = slice(first, size, stride)
        taps = [i for i in range(kernel) if (i * dilation - remainder) % stride == 0]
        spacing = dilation * apart // stride
        start = above - (taps[-1] * dilation - remainder) // stride if taps else 0
        stop = start + len(range(size)[places]) + (len(taps) - 1) * spacing if taps else 0
        result.append(Phase(places, slice(min(taps, default=kernel), None, apart), start, stop, spacing))
    return result


def cut_out(g: Array, rows: tuple[int, int], columns: tuple[int, int]) -> Array:
    """g[:, rows, columns] for rows and columns from the first to behind the last, zero where g has none."""
    (top, bottom), (left, right) = rows, columns
    inside = g[:, max(top, 0) : max(bottom, 0), max(left, 0) : max(right, 0)]
    if inside.shape[1:3] == (bottom - top, right - left):
        return inside
    larger = array_module(g).zeros((len(g), bottom - top, right - left, g.shape[3]), g.dtype)
    y, x = max(-top, 0), max(-left, 0)
    larger[:, y : y + inside.shape[1], x : x + inside.shape[2]] = inside
    return larger
