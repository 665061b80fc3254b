"""Images of another size as loops.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``fast/__init__.py``.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from ... import loops
from ...device import Array
from ...faster import form_of
from ..resize import Axis, Pooled, interpolate_by_axes
from .window_loops import means_by_loops


@form_of(interpolate_by_axes)
def by_loops(x: np.ndarray, rows: Axis, columns: Axis) -> Pooled:
    """The gradient of a pixel that is copied is the sum of a window, its copies'."""
    if not loops.can_take(x):
        return NotImplemented
    shape, y = x.shape, np.empty((len(x), rows.m, columns.m, x.shape[3]), x.dtype)
    if rows.mode != "bilinear":
        write_copies(x, neighbours(rows)[0], neighbours(columns)[0], y)
        return y, lambda g: means_by_loops(g, lambda: (copies(rows), copies(columns)))[0]
    write_blends(x, *neighbours(rows), *neighbours(columns), y)

    def to_x(g: np.ndarray) -> np.ndarray:
        d = np.empty(shape, g.dtype)
        write_gradient_of_blends(g, *neighbours(rows), *neighbours(columns), d)
        return d

    return y, to_x


@lru_cache(256)
def neighbours(along: Axis) -> tuple[np.ndarray, np.ndarray]:
    """The two pixels that each output along an axis blends, (m, 2), and the share of the second one."""
    first, second, share = along.places(np)
    return np.stack([first, second], axis=1), share


@lru_cache(256)
def copies(along: Axis) -> np.ndarray:
    """The window of outputs that each pixel along an axis becomes, (n, 3); no sum is divided."""
    stop = np.searchsorted(along.places(np)[0], np.arange(along.n), side="right")
    start = np.concatenate([[0], stop[:-1]])
    return np.stack([start, stop, np.ones_like(stop)], axis=1)


@loops.compiled
def write_copies(x: Array, rows: Array, columns: Array, y: Array) -> None:
    """The pixels in these rows and columns; a row that is there already is copied as a whole."""
    samples, _, _, channels = x.shape
    for n in range(samples):
        for i in range(len(rows)):
            r = rows[i, 0]
            if i > 0 and r == rows[i - 1, 0]:
                before, line = y[n, i - 1].reshape(-1), y[n, i].reshape(-1)
                for e in range(len(line)):
                    line[e] = before[e]
            else:
                for j in range(len(columns)):
                    s = columns[j, 0]
                    for c in range(channels):
                        y[n, i, j, c] = x[n, r, s, c]


@loops.compiled
def write_blends(x: Array, rows: Array, down: Array, columns: Array, across: Array, y: Array) -> None:
    """Blends of whole rows of an image, and then along the rows."""
    samples, _, width, channels = x.shape
    tall = np.empty((width, channels), x.dtype)
    of_tall = tall.reshape(-1)
    for n in range(samples):
        for i in range(len(rows)):
            first, second = x[n, rows[i, 0]].reshape(-1), x[n, rows[i, 1]].reshape(-1)
            v, w = x.dtype.type(1 - down[i]), x.dtype.type(down[i])
            for e in range(len(of_tall)):
                of_tall[e] = v * first[e] + w * second[e]
            for j in range(len(columns)):
                s, t = columns[j, 0], columns[j, 1]
                v, w = x.dtype.type(1 - across[j]), x.dtype.type(across[j])
                for c in range(channels):
                    y[n, i, j, c] = v * tall[s, c] + w * tall[t, c]


@loops.compiled
def write_gradient_of_blends(
    g: Array, rows: Array, down: Array, columns: Array, across: Array, d: Array
) -> None:
    samples, _, width, channels = d.shape
    wide = np.empty((width, channels), d.dtype)
    of_wide = wide.reshape(-1)
    for n in range(samples):
        d[n] = 0
        for i in range(len(rows)):
            of_wide[:] = 0
            for j in range(len(columns)):
                s, t = columns[j, 0], columns[j, 1]
                v, w = d.dtype.type(1 - across[j]), d.dtype.type(across[j])
                for c in range(channels):
                    wide[s, c] += v * g[n, i, j, c]
                for c in range(channels):
                    wide[t, c] += w * g[n, i, j, c]
            first, second = d[n, rows[i, 0]].reshape(-1), d[n, rows[i, 1]].reshape(-1)
            v, w = d.dtype.type(1 - down[i]), d.dtype.type(down[i])
            for e in range(len(of_wide)):
                first[e] += v * of_wide[e]
            for e in range(len(of_wide)):
                second[e] += w * of_wide[e]
