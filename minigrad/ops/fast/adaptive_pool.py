"""Adaptive pools by windows of one size, and by loops over windows of several.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``fast/__init__.py``.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise

import numpy as np

from ... import loops
from ...device import Array
from ...dtypes import floating
from ...faster import form_of
from ...memory_order import nchw, nhwc
from ...pullback import OpResult
from ..geometry import Geometry
from ..pool import max_of_windows, mean_of_windows
from ..resize import Sizes, adaptive_avg_pool2d, adaptive_max_pool2d, rows_and_columns, spans
from .window_loops import max_by_loops, means_by_loops


@form_of(adaptive_avg_pool2d)
def adaptive_avg_pool2d_in_one_pass(x: Array, *, output_size: Sizes) -> OpResult:
    """Each window is added up at once, where the readable form adds along one axis and then the other."""
    x, sizes = floating(x), (*x.shape[2:], *rows_and_columns(x, output_size))
    geometry = even_windows(*sizes)
    if geometry is not None:
        y, to_x = mean_of_windows(nhwc(x), geometry, True)
    elif loops.can_take(x):
        y, to_x = means_by_loops(nhwc(x), lambda: tables_of_means(*sizes))
    else:
        return NotImplemented
    return nchw(y), (lambda g: nchw(to_x(nhwc(g))),)


@form_of(adaptive_max_pool2d)
def adaptive_max_pool2d_in_one_pass(x: Array, *, output_size: Sizes) -> OpResult:
    """Each window is searched at once, where the readable form takes one axis and then the other."""
    sizes = (*x.shape[2:], *rows_and_columns(x, output_size))
    geometry = even_windows(*sizes)
    if geometry is not None:
        y, to_x = max_of_windows(nhwc(x), geometry)
    elif loops.can_take(x):
        y, to_x = max_by_loops(nhwc(x), lambda: tables_and_taps(*sizes))
    else:
        return NotImplemented
    return nchw(y), (lambda g: nchw(to_x(nhwc(g))),)


@lru_cache(256)
def even_windows(height: int, width: int, rows: int, columns: int) -> Geometry | None:
    """The windows, where all are of one size and at equal distances; else None."""
    kernel, stride = [], []
    for n, count in ((height, rows), (width, columns)):
        windows = spans(n, count)
        sizes = {window.stop - window.start for window in windows}
        steps = {b.start - a.start for a, b in pairwise(windows)} or sizes
        if len(sizes) > 1 or len(steps) > 1 or 0 in steps:
            return None
        kernel += sizes
        stride += steps
    return Geometry((kernel[0], kernel[1]), (stride[0], stride[1]), (0, 0), (1, 1))


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
    """The windows of rows and of columns, and each tap's distance from the first, for ``max_by_loops``."""
    down, across = tables_of_means(height, width, rows, columns)
    return down, across, np.array([*np.ndindex(down[:, 2].max(), across[:, 2].max())])
