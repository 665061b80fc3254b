"""Loops over windows on images (N, H, W, C): their maxima, their weighted sums, and both gradients.

The windows of an axis are a table, (count, 3): the first pixel of each, the one behind its last, and what a
sum is divided by. A window may begin before the image, and ends with it: no copy of the image gets a border.
Pools and adaptive pools differ only in their tables, and so do means and blends of neighbouring pixels.
Lecture section: back-propagation. Lesson: 02_backpropagation, by ``pool.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .. import loops
from ..device import Array

Pooled = tuple[Array, Callable[[Array], Array]]
Weighted = tuple[np.ndarray, np.ndarray]  # the windows of an axis, and the weights of the pixels of each
Tables = Callable[[], tuple[Any, ...]]  # called again by backward, so that no tape holds what is cached


def max_by_loops(x: np.ndarray, windows: Tables) -> Pooled:
    """The maxima of windows, of which backward needs the number of the tap, a byte for up to 256 taps.

    ``windows`` gives those of rows and of columns, and the offsets of all taps from a window's first one, in
    reading order.
    """
    (rows, columns, taps), shape = windows(), x.shape
    y = np.empty((len(x), len(rows), len(columns), x.shape[3]), x.dtype)
    winners = np.empty(y.shape, np.uint8 if len(taps) <= 256 else np.uint32)
    write_maxima(x, rows, columns, taps, y, winners)

    def to_x(g: np.ndarray) -> np.ndarray:
        d = np.empty(shape, g.dtype)
        write_gradient_of_maxima(g, winners, *windows(), d)
        return d

    return y, to_x


def sums_by_loops(x: np.ndarray, windows: Tables) -> Pooled:
    """The sums of windows, divided as their tables say; ``windows`` gives those of rows and of columns.

    The weight of a pixel is that of its row in the window times that of its column.
    """
    (rows, down), (columns, across) = windows()
    shape, y = x.shape, np.empty((len(x), len(rows), len(columns), x.shape[3]), x.dtype)
    write_sums(x, rows, columns, down, across, y)

    def to_x(g: np.ndarray) -> np.ndarray:
        (rows, down), (columns, across) = windows()
        d = np.empty(shape, g.dtype)
        write_gradient_of_sums(g, rows, columns, down, across, d)
        return d

    return y, to_x


def of_equal_weights(windows: np.ndarray) -> Weighted:
    return windows, np.ones((len(windows), longest(windows)))


def longest(windows: np.ndarray) -> int:
    """The pixels of the longest window."""
    return int((windows[:, 1] - windows[:, 0]).max())


@loops.compiled
def write_maxima(x: Array, rows: Array, columns: Array, taps: Array, y: Array, winners: Array) -> None:
    """The first largest of each window or its last NaN; tap 0 is the first, also where it is no pixel."""
    samples, _, _, channels = x.shape
    for n in range(samples):
        for i in range(len(rows)):
            y[n, i] = -np.inf
            winners[n, i] = 0
            for k in range(len(taps)):
                r = rows[i, 0] + taps[k, 0]
                if 0 <= r < rows[i, 1]:
                    for j in range(len(columns)):
                        s = columns[j, 0] + taps[k, 1]
                        if 0 <= s < columns[j, 1]:
                            for c in range(channels):
                                value, top, winner = x[n, r, s, c], y[n, i, j, c], winners[n, i, j, c]
                                larger = (value > top) | (value != value)
                                y[n, i, j, c] = value if larger else top
                                winners[n, i, j, c] = winner + larger * (k - winner)  # without a branch


@loops.compiled
def write_gradient_of_maxima(
    g: Array, winners: Array, rows: Array, columns: Array, taps: Array, d: Array
) -> None:
    samples, height, width, channels = d.shape
    places = (taps[:, 0] * width + taps[:, 1]) * channels
    for n in range(samples):
        image = d[n].reshape(-1)
        image[:] = 0
        for i in range(len(rows)):
            for j in range(len(columns)):
                r, s = rows[i, 0], columns[j, 0]
                first, inside = (r * width + s) * channels, 0 <= r < height and 0 <= s < width
                for c in range(channels):
                    k = winners[n, i, j, c]
                    if k > 0 or inside:
                        image[first + c + places[k]] += g[n, i, j, c]


@loops.compiled
def write_sums(x: Array, rows: Array, columns: Array, down: Array, across: Array, y: Array) -> None:
    """Sums down the columns first, of whole rows of an image, and then along the rows."""
    samples, _, width, channels = x.shape
    tall = np.empty((width, channels), x.dtype)
    of_tall = tall.reshape(-1)
    for n in range(samples):
        for i in range(len(rows)):
            of_tall[:] = 0
            for r in range(max(rows[i, 0], 0), rows[i, 1]):
                weight, line = x.dtype.type(down[i, r - rows[i, 0]]), x[n, r].reshape(-1)
                for e in range(len(line)):
                    of_tall[e] += weight * line[e]
            y[n, i] = 0
            for b in range(across.shape[1]):
                for j in range(len(columns)):
                    s = columns[j, 0] + b
                    if 0 <= s < columns[j, 1]:
                        weight = x.dtype.type(across[j, b])
                        for c in range(channels):
                            y[n, i, j, c] += weight * tall[s, c]
            for j in range(len(columns)):
                divisor = x.dtype.type(rows[i, 2] * columns[j, 2])
                if divisor > 1:
                    for c in range(channels):
                        y[n, i, j, c] /= divisor


@loops.compiled
def write_gradient_of_sums(
    g: Array, rows: Array, columns: Array, down: Array, across: Array, d: Array
) -> None:
    samples, _, width, channels = d.shape
    wide = np.empty((width, channels), d.dtype)
    of_wide = wide.reshape(-1)
    for n in range(samples):
        d[n] = 0
        for i in range(len(rows)):
            of_wide[:] = 0
            for j in range(len(columns)):
                first, stop, divisor = columns[j, 0], columns[j, 1], rows[i, 2] * columns[j, 2]
                for s in range(max(first, 0), stop):
                    weight = d.dtype.type(across[j, s - first] / divisor)
                    for c in range(channels):
                        wide[s, c] += weight * g[n, i, j, c]
            for r in range(max(rows[i, 0], 0), rows[i, 1]):
                weight, line = d.dtype.type(down[i, r - rows[i, 0]]), d[n, r].reshape(-1)
                for e in range(len(line)):
                    line[e] += weight * of_wide[e]


@loops.compiled
def write_pixels(x: Array, rows: Array, columns: Array, y: Array) -> None:
    """The pixels in these rows and columns; a row that is there already is copied as a whole."""
    samples, _, _, channels = x.shape
    for n in range(samples):
        for i in range(len(rows)):
            r = rows[i]
            if i > 0 and r == rows[i - 1]:
                before, line = y[n, i - 1].reshape(-1), y[n, i].reshape(-1)
                for e in range(len(line)):
                    line[e] = before[e]
            else:
                for j in range(len(columns)):
                    s = columns[j]
                    for c in range(channels):
                        y[n, i, j, c] = x[n, r, s, c]
