"""Images enlarged by whole factors: the fast forms of ``interpolate.py``.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``interpolate.py``.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from ..device import Array, array_module, on_gpu
from .geometry import Geometry
from .window_sums import image_runs, lines, spread_over_windows, sums_of_windows

Factors = tuple[int, int]
ROWS, COLUMNS = 24, 32  # of images, the most that are blended by a product of matrices


def repeated(x: Array, factors: Factors) -> Array:
    """Each pixel as often as the factors say."""
    (_, height, width, _), (down, across) = x.shape, factors
    return spread_over_windows(x, tiles(factors), height * down, width * across)


def sum_of_repeated(g: Array, factors: Factors) -> Array:
    """The transpose of ``repeated``."""
    return sums_of_windows(g, tiles(factors))


def tiles(factors: Factors) -> Geometry:
    return Geometry(factors, factors, (0, 0), (1, 1))


def blended(x: Array, factors: Factors) -> Array:
    """Between neighbouring pixels of a column, and of a row."""
    xp, (n, height, width, channels), (down, across) = array_module(x), x.shape, factors
    dtype, scale = x.dtype if x.dtype.kind == "f" else float, 4 * down * across
    y = xp.empty((n, height * down, width * across, channels), dtype)
    of_rows, of_columns = (
        blending_matrix(*axis, y) for axis in ((height, down, ROWS), (width, across, COLUMNS))
    )
    for images in image_runs(y):
        part, out = x[images], y[images]
        if of_columns is not None:
            tall = np.empty((len(part), height * down, width, channels), dtype)
            with np.errstate(invalid="ignore"):
                if of_rows is None:
                    blend(part / scale, down, tall)
                else:
                    np.matmul(of_rows / scale, lines(part), out=lines(tall))
                np.matmul(of_columns, tall, out=out)
        if of_columns is None or not np.isfinite(out[:, :, 0]).all():
            part = xp.divide(part, scale, dtype=dtype)
            wide = xp.empty((len(part), height, width * across, channels), dtype)
            blend(part.swapaxes(1, 2), across, wide.swapaxes(1, 2))
            blend(wide, down, out)
    return y


def sum_of_blended(g: Array, factors: Factors) -> Array:
    """The transpose of ``blended``."""
    xp, (n, rows, columns, channels), (down, across) = array_module(g), g.shape, factors
    height, width, scale = rows // down, columns // across, 4 * down * across
    d = xp.empty((n, height, width, channels), g.dtype)
    of_rows, of_columns = (
        blending_matrix(*axis, g) for axis in ((height, down, ROWS), (width, across, COLUMNS))
    )
    for images in image_runs(g):
        part, out = g[images], d[images]
        if of_columns is not None:
            with np.errstate(invalid="ignore"):
                tall = np.matmul(of_columns.T / scale, part)
                if of_rows is None:
                    add_blends(tall, down, out)
                else:
                    np.matmul(of_rows.T, lines(tall), out=lines(out))
        if of_columns is None or not np.isfinite(out[:, :, 0]).all():
            tall = xp.empty((len(part), height, columns, channels), g.dtype)
            add_blends(part / scale, down, tall)
            add_blends(tall.swapaxes(1, 2), across, out.swapaxes(1, 2))
    return d


def blending_matrix(n: int, factor: int, most: int, like: Array) -> np.ndarray | None:
    """What ``blend`` does along ``n`` pixels, (n factor, n); None where it pays no more than ``blend``.

    Along a row of 16 pixels the product takes a fifth as long. Its zeros times what is infinite are NaN, so
    that a product along rows shows in any column whether there was something infinite.
    """
    if on_gpu(like) or like.dtype.char not in "fd" or n > most:
        return None
    return blended_unit_vectors(n, factor, like.dtype)


@lru_cache(64)
def blended_unit_vectors(n: int, factor: int, dtype: np.dtype) -> np.ndarray:
    """The matrix of ``blend``, of which nobody writes an element: to build it takes 10 us."""
    matrix = np.empty((1, n * factor, n), dtype)
    blend(np.eye(n, dtype=dtype)[None], factor, matrix)
    return matrix[0]


def blend(x: Array, factor: int, y: Array) -> None:
    """Write to y 2 ``factor`` times the values between neighbours along axis 1; outside of x is its border.

    Of the ``factor`` pixels of y for a pixel of x, number i of the first half blends it with the one before:
    1 + 2 i + factor parts and factor - 1 - 2 i parts. The second half mirrors the first.
    """
    if factor % 2:
        y[:, factor // 2 :: factor] = x * (2 * factor)
    for i in range(factor // 2):
        near, far = x * (factor + 1 + 2 * i), times(x, factor - 1 - 2 * i)
        left, right = y[:, i::factor], y[:, factor - 1 - i :: factor]
        for out, inner, outer in (
            (left[:, 1:], near[:, 1:], far[:, :-1]),
            (right[:, :-1], near[:, :-1], far[:, 1:]),
        ):
            array_module(x).add(inner, outer, out=out)
        left[:, 0], right[:, -1] = near[:, 0] + far[:, 0], near[:, -1] + far[:, -1]


def add_blends(g: Array, factor: int, d: Array) -> None:
    """The transpose of ``blend``, written to d."""
    xp = array_module(g)
    if factor % 2:
        xp.multiply(g[:, factor // 2 :: factor], 2 * factor, out=d)
    for i in range(factor // 2):
        left, right = g[:, i::factor], g[:, factor - 1 - i :: factor]
        both = xp.add(left, right, out=None if factor % 2 or i else d)
        both *= factor + 1 + 2 * i
        if both is not d:
            d += both
        parts = factor - 1 - 2 * i
        left, right = times(left, parts), times(right, parts)
        d[:, :-1] += left[:, 1:]
        d[:, 1:] += right[:, :-1]
        d[:, 0] += left[:, 0]
        d[:, -1] += right[:, -1]


def times(x: Array, factor: int) -> Array:
    return x if factor == 1 else x * factor


MODES: dict[str, Any] = {
    "nearest": (repeated, sum_of_repeated),
    "nearest-exact": (repeated, sum_of_repeated),
    "bilinear": (blended, sum_of_blended),
}
