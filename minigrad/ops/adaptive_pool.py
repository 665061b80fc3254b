"""Pooling to a size of the output, whatever that of the images.

Of n windows on m pixels window i goes from i m / n to (i + 1) m / n, rounded outwards. So windows overlap
where n does not divide m; columns and rows are pooled one after the other.
Lecture section: back-propagation. Lesson: 02_backpropagation, by ``ops/__init__.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..device import Array, array_module
from ..dtypes import floating
from ..faster import faster
from ..half import half_in_single
from ..memory_order import nchw, nhwc
from ..op import op
from ..pullback import OpResult
from .geometry import pair
from .pool import Pooled, shares_of_largest

Sizes = int | tuple[int | None, int | None]


@op
@half_in_single
@faster
def adaptive_avg_pool2d(x: Array, *, output_size: Sizes) -> OpResult:
    """The means of windows that make (N, C, H, W) to (N, C, *output_size); None leaves a size as it is.

    Raises ValueError for other shapes and for images without pixels.
    """
    return along_both_axes(mean, floating(x), *rows_and_columns(x, output_size))


@op
@faster
def adaptive_max_pool2d(x: Array, *, output_size: Sizes) -> OpResult:
    """The largest elements of the windows of ``adaptive_avg_pool2d``, with the gradient of ``max_pool2d``."""
    return along_both_axes(largest, x, *rows_and_columns(x, output_size))


def rows_and_columns(x: Array, output_size: Sizes) -> tuple[int, int]:
    """How many rows and columns the output for images x has."""
    if x.ndim != 4 or min(x.shape[2:]) < 1:
        raise ValueError(f"pooling takes images (N, C, H, W) with pixels, got shape {x.shape}")
    sizes: Any = output_size if np.iterable(output_size) else (output_size, output_size)
    if len(sizes) == 2:
        sizes = tuple(n if size is None else size for n, size in zip(x.shape[2:], sizes, strict=True))
    return pair(sizes, "output_size", 1)


def mean(x: Array, axis: int) -> Pooled:
    """The mean along ``axis``, which keeps one element."""
    xp, shape = array_module(x), x.shape
    return x.mean(axis=axis, keepdims=True), lambda g: xp.broadcast_to(g / shape[axis], shape)


def largest(x: Array, axis: int) -> Pooled:
    """The largest element along ``axis``, which keeps one element."""
    xp, n, y = array_module(x), x.shape[axis], x.max(axis=axis, keepdims=True)

    def to_x(g: Array) -> Array:
        return xp.concatenate([*shares_of_largest(g, y, xp.split(x, n, axis), [True] * n)], axis)

    return y, to_x


def along_both_axes(pool: Callable[[Array, int], Pooled], x: Array, rows: int, columns: int) -> OpResult:
    """Columns first: so the largest of equal elements is the first in reading order."""
    narrow, to_columns = in_each_window(pool, nhwc(x), 2, columns)
    y, to_rows = in_each_window(pool, narrow, 1, rows)
    return nchw(y), (lambda g: nchw(to_columns(to_rows(nhwc(g)))),)


def in_each_window(pool: Callable[[Array, int], Pooled], x: Array, axis: int, count: int) -> Pooled:
    """``pool`` along ``axis`` of each of ``count`` windows on it."""
    xp, shape = array_module(x), x.shape
    windows = [(slice(None),) * axis + (span,) for span in spans(shape[axis], count)]
    values, pullbacks = zip(*(pool(x[window], axis) for window in windows), strict=True)

    def to_x(g: Array) -> Array:
        d = xp.zeros(shape, g.dtype)
        for window, pullback, part in zip(windows, pullbacks, xp.split(g, count, axis), strict=True):
            d[window] += pullback(part)
        return d

    return xp.concatenate(values, axis), to_x


def spans(n: int, count: int) -> list[slice]:
    """``count`` windows on ``n`` pixels, by PyTorch's rule."""
    return [slice(i * n // count, -(-(i + 1) * n // count)) for i in range(count)]
