"""What NumPy alone needs for a row of ``ops.py``: its passes and products, on arrays that are there already.

No tape, no checks, nothing allocated: the fewest calls of NumPy that give the value and the gradients. Where
they take longer than PyTorch, they are what stands in the way of a row. A limit of a convolution holds its
matrix products only, and no copies.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Calls = Callable[[], object]
RUN = 8  # images at a time, where several calls follow one another: they find them in cache


def relu(*shape: int) -> Calls:
    """One pass forward; the mask and a product backward."""
    x, g = normal(2, *shape)
    zero, mask, y, d = np.zeros_like(x), np.empty(shape, bool), np.empty_like(x), np.empty_like(x)

    def calls() -> None:
        np.maximum(x, zero, out=y)
        np.greater(y, 0, out=mask)
        np.multiply(g, mask, out=d)

    return calls


def max_pool_by_two(n: int, size: int, channels: int) -> Calls:
    """Maxima of two rows, then of two columns; a comparison for each; where each window's gradient goes."""
    x, d = normal(2, n, size, size, channels)
    half = size // 2
    y, g = normal(2, n, half, half, channels)
    tall, work = np.empty((RUN, half, size, channels), x.dtype), np.empty((RUN, half, size, channels), bool)
    places = np.arange(RUN * y[0].size) * 4  # any that differ

    def calls() -> None:
        for i in range(0, n, RUN):
            upper, lower = x[i : i + RUN, ::2], x[i : i + RUN, 1::2]
            np.maximum(upper, lower, out=tall)
            np.greater(lower, upper, out=work)
            np.maximum(tall[:, :, ::2], tall[:, :, 1::2], out=y[i : i + RUN])
            np.greater(tall[:, :, 1::2], tall[:, :, ::2], out=work[:, :, :half])
        for i in range(0, n, RUN):
            d[i : i + RUN] = 0
            d[i : i + RUN].reshape(-1)[places] = g[i : i + RUN].reshape(-1)

    return calls


def max_pool_by_three(n: int, size: int, channels: int, windows: int) -> Calls:
    """Windows of 3 x 3 at every second pixel: as ``max_pool_by_two``, but gradients are added.

    The last of the windows may be smaller.
    """
    x, d = normal(2, n, size, size, channels)
    y, g = normal(2, n, windows, windows, channels)
    wide, work = (
        np.empty((RUN, size, windows, channels), x.dtype),
        np.empty((RUN, size, windows, channels), bool),
    )
    taps = [slice(i, i + 2 * windows - 1, 2) for i in range(3)]
    places = np.arange(RUN * y[0].size) * (d.size // y.size)

    def calls() -> None:
        for i in range(0, n, RUN):
            first, *others = (x[i : i + RUN, :, tap] for tap in taps)
            for tap in others:
                count = tap.shape[2]
                np.greater(tap, first[:, :, :count], out=work[:, :, :count])
                np.maximum(tap, first[:, :, :count], out=wide[:, :, :count])
                first = wide
            first, *others = (wide[:, tap] for tap in taps)
            for tap in others:
                count = tap.shape[1]
                np.greater(tap, first[:, :count], out=work[:, :count])
                np.maximum(tap, first[:, :count], out=y[i : i + RUN, :count])
                first = y[i : i + RUN]
        for i in range(0, n, RUN):
            d[i : i + RUN] = 0
            np.add.at(d[i : i + RUN].reshape(-1), places, g[i : i + RUN].reshape(-1))

    return calls


def nearest_by_two(n: int, size: int, channels: int) -> Calls:
    """Columns are copied twice, then rows; backward two rows are added, then two columns."""
    x, d = normal(2, n, size, size, channels)
    y, g = normal(2, n, 2 * size, 2 * size, channels)
    tall = np.empty((RUN, size, 2 * size, channels), x.dtype)

    def calls() -> None:
        for i in range(0, n, RUN):
            tall[:, :, ::2] = x[i : i + RUN]
            tall[:, :, 1::2] = x[i : i + RUN]
            y[i : i + RUN, ::2] = tall
            y[i : i + RUN, 1::2] = tall
        for i in range(0, n, RUN):
            np.add(g[i : i + RUN, ::2], g[i : i + RUN, 1::2], out=tall)
            np.add(tall[:, :, ::2], tall[:, :, 1::2], out=d[i : i + RUN])

    return calls


def bilinear_by_two(n: int, size: int, channels: int) -> Calls:
    """3 x + its neighbour above or below, then a product along rows; backward the transpose of both."""
    x, d = normal(2, n, size, size, channels)
    y, g = normal(2, n, 2 * size, 2 * size, channels)
    tall, matrix = normal(1, RUN, 2 * size, size, channels)[0], normal(1, 2 * size, size)[0]
    three = np.empty_like(x[:RUN])

    def calls() -> None:
        for i in range(0, n, RUN):
            part = x[i : i + RUN]
            np.multiply(part, 3, out=three)
            np.add(three[:, 1:], part[:, :-1], out=tall[:, 2::2])
            np.add(three[:, :-1], part[:, 1:], out=tall[:, 1:-1:2])
            np.matmul(matrix, tall, out=y[i : i + RUN])
        for i in range(0, n, RUN):
            np.matmul(matrix.T, g[i : i + RUN], out=tall)
            part = d[i : i + RUN]
            np.add(tall[:, ::2], tall[:, 1::2], out=part)
            np.multiply(part, 3, out=part)
            np.add(part[:, :-1], tall[:, 2::2], out=part[:, :-1])
            np.add(part[:, 1:], tall[:, 1:-1:2], out=part[:, 1:])

    return calls


def normal(count: int, *shape: int) -> np.ndarray:
    """So many arrays of one shape, (count, *shape), in float32."""
    return np.random.default_rng(0).standard_normal((count, *shape), np.float32)


LIMITS: dict[str, Callable[[], Calls]] = {  # by the title of the row
    "relu 1M": lambda: relu(1024, 1024),
    "relu 64x32x32x32": lambda: relu(64, 32, 32, 32),
    "max_pool 2 64x32x32x32": lambda: max_pool_by_two(64, 32, 32),
    "max_pool 3, stride 2 32x32x32x32": lambda: max_pool_by_three(32, 32, 32, 15),
    "max_pool 3, stride 2, ceil_mode 32x32x32x32": lambda: max_pool_by_three(32, 32, 32, 16),
    "adaptive_max_pool 6 32x256x13x13": lambda: max_pool_by_three(32, 13, 256, 6),
    "upsample 2 nearest 32x64x16x16": lambda: nearest_by_two(32, 16, 64),
    "upsample 2 bilinear 32x64x16x16": lambda: bilinear_by_two(32, 16, 64),
}
