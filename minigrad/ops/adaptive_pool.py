"""Pooling to a size of the output, whatever that of the images.

Of n windows on m pixels window i goes from i m / n to (i + 1) m / n, rounded outwards. So windows overlap
where n does not divide m; there columns and rows are pooled one after the other.
Lecture section: back-propagation. Lesson: 02_backpropagation, by ``ops/__init__.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np

from .. import loops
from ..device import Array, array_module
from ..keyword_settings import settings_by_name
from ..op import OpResult, op
from ..tensor import Tensor
from .elementwise import floating
from .geometry import nchw, nhwc, pair
from .pool import avg_pool2d, max_pool2d, shares_of_largest
from .window_loops import Pooled, max_by_loops, means_by_loops

Sizes = int | tuple[int | None, int | None]


@settings_by_name
def adaptive_avg_pool2d(x: Any, *, output_size: Sizes) -> Tensor:
    """The means of windows that make (N, C, H, W) to (N, C, *output_size); None leaves a size as it is.

    Raises ValueError for other shapes and for images without pixels.
    """
    return adaptive_pool(x, output_size, avg_pool2d, mean_of_spans)


@settings_by_name
def adaptive_max_pool2d(x: Any, *, output_size: Sizes) -> Tensor:
    """The largest elements of the windows of ``adaptive_avg_pool2d``, with the gradient of ``max_pool2d``."""
    return adaptive_pool(x, output_size, max_pool2d, largest_of_spans)


def adaptive_pool(
    x: Any, output_size: Sizes, of_windows: Callable[..., Tensor], of_spans: Callable[..., Tensor]
) -> Tensor:
    """Windows of one size at equal distances by ``of_windows``, all others by ``of_spans``."""
    x = x if isinstance(x, Tensor) else Tensor(x)
    if x.ndim != 4 or min(x.shape[2:]) < 1:
        raise ValueError(f"pooling takes images (N, C, H, W) with pixels, got shape {x.shape}")
    sizes: Any = output_size if np.iterable(output_size) else (output_size, output_size)
    height, width = x.shape[2:]
    if len(sizes) == 2:
        sizes = tuple(n if size is None else size for n, size in zip((height, width), sizes, strict=True))
    rows, columns = pair(sizes, "output_size", 1)
    down, across = even_windows(spans(height, rows)), even_windows(spans(width, columns))
    if down is None or across is None:
        return of_spans(x, rows=rows, columns=columns)
    return of_windows(x, kernel=(down[0], across[0]), stride=(down[1], across[1]))


def even_windows(windows: list[slice]) -> tuple[int, int] | None:
    """The size and the distance that all the windows have; None where they differ."""
    sizes = {window.stop - window.start for window in windows}
    steps = {b.start - a.start for a, b in pairwise(windows)} or sizes
    return (*sizes, *steps) if len(sizes) == len(steps) == 1 and min(steps) > 0 else None


@op
def mean_of_spans(x: Array, *, rows: int, columns: int) -> OpResult:
    x, (_, _, height, width) = floating(x), x.shape
    if not loops.can_take(x):
        return along_both_axes(mean_along, x, rows, columns)
    y, to_x = means_by_loops(nhwc(x), lambda: tables_of_means(height, width, rows, columns))
    return nchw(y), (lambda g: nchw(to_x(nhwc(g))),)


@op
def largest_of_spans(x: Array, *, rows: int, columns: int) -> OpResult:
    _, _, height, width = x.shape
    if not loops.can_take(x):
        return along_both_axes(largest_along, x, rows, columns)
    y, to_x = max_by_loops(nhwc(x), lambda: tables_and_taps(height, width, rows, columns))
    return nchw(y), (lambda g: nchw(to_x(nhwc(g))),)


@lru_cache(256)
def tables_of_means(height: int, width: int, rows: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """The windows of rows and of columns, for ``means_by_loops``."""
    down, across = (
        np.array([(span.start, span.stop, span.stop - span.start) for span in spans(n, count)])
        for n, count in ((height, rows), (width, columns))
    )
    return down, across


@lru_cache(256)
def tables_and_taps(
    height: int, width: int, rows: int, columns: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The same, and how far each tap is from the first one of its window, for ``max_by_loops``."""
    down, across = tables_of_means(height, width, rows, columns)
    return down, across, np.array([*np.ndindex(down[:, 2].max(), across[:, 2].max())])


def along_both_axes(pool: Callable[[Array, int, int], Pooled], x: Array, rows: int, columns: int) -> OpResult:
    """Columns first: so the largest of equal elements is the first in reading order."""
    narrow, to_columns = pool(nhwc(x), 2, columns)
    y, to_rows = pool(narrow, 1, rows)
    return nchw(y), (lambda g: nchw(to_columns(to_rows(nhwc(g)))),)


def spans(n: int, count: int) -> list[slice]:
    """``count`` windows on ``n`` pixels, by PyTorch's rule."""
    return [slice(i * n // count, -(-(i + 1) * n // count)) for i in range(count)]


def mean_along(x: Array, axis: int, count: int) -> Pooled:
    """The means of ``count`` windows along ``axis``."""
    xp, before, parts = array_module(x), (slice(None),) * axis, spans(x.shape[axis], count)
    y = xp.stack([x[(*before, part)].mean(axis=axis, dtype=x.dtype) for part in parts], axis)

    def to_x(g: Array) -> Array:
        d = xp.zeros(x.shape, g.dtype)
        for i, part in enumerate(parts):
            d[(*before, part)] += g[(*before, slice(i, i + 1))] / (part.stop - part.start)
        return d

    return y, to_x


def largest_along(x: Array, axis: int, count: int) -> Pooled:
    """The largest elements of ``count`` windows along ``axis``: the readable form."""
    xp, before, parts = array_module(x), (slice(None),) * axis, spans(x.shape[axis], count)
    y = xp.stack([x[(*before, part)].max(axis=axis) for part in parts], axis)

    def to_x(g: Array) -> Array:
        d = xp.zeros(x.shape, g.dtype)
        for i, part in enumerate(parts):
            places: list[Any] = [(*before, k) for k in range(part.start, part.stop)]
            for place, share in zip(places, shares_of_largest(g[(*before, i)], x, places), strict=True):
                d[place] += share
        return d

    return y, to_x
