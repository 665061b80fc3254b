"""Loops over windows on images (N, H, W, C): their maxima, their means, and the gradients of both.

The windows of an axis are a table, (count, 3): the first pixel of each, the one behind its last, and what a
sum is divided by. A window may begin before the image, and ends with it: no copy of the image gets a border.
Pools and adaptive pools differ only in their tables.
Lecture section: back-propagation. Lesson: 02_backpropagation, by ``fast/pool.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ... import loops
from ...device import Array
from ..pool import Pooled

Tables = Callable[[], tuple[Any, ...]]  # called again by backward, so that no tape holds what is cached


def max_by_loops(x: np.ndarray, tables: Tables) -> Pooled:
    """The maxima of windows, of which backward needs the number of the tap, a byte for up to 256 taps.

    ``tables`` gives those of rows and of columns, and the offsets of all taps from a window's first one, in
    reading order.
    """
    (rows, columns, taps), shape = tables(), x.shape
    y = np.empty((len(x), len(rows), len(columns), x.shape[3]), x.dtype)
    winners = np.empty(y.shape, np.uint8 if len(taps) <= 256 else np.uint32)
    write_maxima(x, rows, columns, taps, y, winners)

    def to_x(g: np.ndarray) -> np.ndarray:
        d = np.empty(shape, g.dtype)
        write_gradient_of_maxima(g, winners, *tables(), d)
        return d

    return y, to_x


def means_by_loops(x: np.ndarray, tables: Tables) -> Pooled:
    """The sums of windows, each divided as its tables say; ``tables`` gives those of rows and of columns."""
    (rows, columns), shape = tables(), x.shape
    y = np.empty((len(x), len(rows), len(columns), x.shape[3]), x.dtype)
    write_means(x, rows, columns, y)

    def to_x(g: np.ndarray) -> np.ndarray:
        d = np.empty(shape, g.dtype)
        write_gradient_of_means(g, *tables(), d)
        return d

    return y, to_x


@loops.compiled
def write_maxima(x: Array, rows: Array, columns: Array, taps: Array, y: Array, winners: Array) -> None:
    """The first largest of each window or its last NaN; 0 where no pixel is larger than -inf.

    One tap of all windows in a row, then the next: a processor waits for a number that it has just written.
    """
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
                                winners[n, i, j, c] = winner + larger * (k - winner)  # no branch to predict


@loops.compiled
def write_gradient_of_maxima(
    g: Array, winners: Array, rows: Array, columns: Array, taps: Array, d: Array
) -> None:
    """Where the first tap is no pixel, the winner 0 stands for the first tap that is one."""
    samples, height, width, channels = d.shape
    places = (taps[:, 0] * width + taps[:, 1]) * channels
    for n in range(samples):
        image = d[n].reshape(-1)
        image[:] = 0
        for i in range(len(rows)):
            for j in range(len(columns)):
                r, s = rows[i, 0], columns[j, 0]
                first, least = (r * width + s) * channels, 0
                inside = 0 <= r < height and 0 <= s < width
                while not inside and least < len(taps):
                    inside = 0 <= r + taps[least, 0] < height and 0 <= s + taps[least, 1] < width
                    least += not inside
                if inside:
                    for c in range(channels):
                        k = winners[n, i, j, c]
                        image[first + c + places[k if k > least else least]] += g[n, i, j, c]


@loops.compiled
def write_means(x: Array, rows: Array, columns: Array, y: Array) -> None:
    """Sums down the columns first, of whole rows of an image, and then along the rows."""
    samples, _, width, channels = x.shape
    tall, longest = np.empty((width, channels), x.dtype), 0
    of_tall = tall.reshape(-1)
    for j in range(len(columns)):
        longest = max(longest, columns[j, 1] - columns[j, 0])
    for n in range(samples):
        for i in range(len(rows)):
            of_tall[:] = 0
            for r in range(max(rows[i, 0], 0), rows[i, 1]):
                line = x[n, r].reshape(-1)
                for e in range(len(line)):
                    of_tall[e] += line[e]
            y[n, i] = 0
            for b in range(longest):
                for j in range(len(columns)):
                    s = columns[j, 0] + b
                    if 0 <= s < columns[j, 1]:
                        for c in range(channels):
                            y[n, i, j, c] += tall[s, c]
            for j in range(len(columns)):
                divisor = x.dtype.type(rows[i, 2] * columns[j, 2])
                if divisor > 1:
                    for c in range(channels):
                        y[n, i, j, c] /= divisor


@loops.compiled
def write_gradient_of_means(g: Array, rows: Array, columns: Array, d: Array) -> None:
    samples, _, width, channels = d.shape
    wide = np.empty((width, channels), d.dtype)
    of_wide = wide.reshape(-1)
    for n in range(samples):
        d[n] = 0
        for i in range(len(rows)):
            of_wide[:] = 0
            for j in range(len(columns)):
                first, stop = columns[j, 0], columns[j, 1]
                share = d.dtype.type(1 / (rows[i, 2] * columns[j, 2]))
                for s in range(max(first, 0), stop):
                    for c in range(channels):
                        wide[s, c] += share * g[n, i, j, c]
            for r in range(max(rows[i, 0], 0), rows[i, 1]):
                line = d[n, r].reshape(-1)
                for e in range(len(line)):
                    line[e] += of_wide[e]
