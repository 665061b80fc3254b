"""Slices that are taken at indices, and borders, an axis at a time.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``fast/__init__.py``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from ...device import Array, array_module
from ...faster import form_of
from ...pullback import OpResult
from ..selection import sum_by_row
from ..shape import bordered, chosen, sums_at


@form_of(sums_at)
def sums_at_whole_slices(g: Array, index: tuple[Any, ...], shape: tuple[int, ...]) -> Array:
    """Integers at neighboring axes choose slices, which are summed as rows."""
    whole = [isinstance(part, slice) and part == slice(None) for part in index]
    first, last = whole.index(False), len(index) - whole[::-1].index(False)
    if any(isinstance(p, slice) or p is None or p is Ellipsis or is_mask(p) for p in index[first:last]):
        return NotImplemented
    xp, before, sizes, after = array_module(g), shape[:first], shape[first:last], shape[last:]
    numbers = xp.arange(sizes[0])[index[first]]
    for n, part in zip(sizes[1:], index[first + 1 : last], strict=True):
        numbers = numbers * n + xp.arange(n)[part]
    rows = g.reshape(math.prod(before), numbers.size, math.prod(after)).swapaxes(0, 1)
    dx = sum_by_row(rows, numbers.reshape(-1), math.prod(sizes)).reshape(*sizes, *before, *after)
    k = len(sizes)
    return dx.transpose(*range(k, k + first), *range(k), *range(k + first, len(shape)))


def is_mask(part: Any) -> bool:
    """Whether an index chooses by booleans."""
    return isinstance(part, bool) or (hasattr(part, "dtype") and part.dtype.kind == "b")


@form_of(bordered)
def bordered_axis_by_axis(x: Array, pairs: Sequence[tuple[int, int]], mode: str) -> OpResult:
    """The axis that is outermost in memory comes first, so the value has the memory order of x."""
    xp, steps = array_module(x), []
    order = sorted(range(x.ndim), key=lambda i: -x.strides[i])
    back = np.argsort(order).tolist()
    y = x.transpose(order)
    for axis, i in enumerate(order):
        if any(pairs[i]):
            if not x.shape[i]:
                return NotImplemented
            places = np.pad(np.arange(x.shape[i]), [*map(int, pairs[i])], mode=cast(Any, mode))
            y, to_y = chosen(y, xp.asarray(places), axis)
            steps.append(to_y)

    def to_x(g: Array) -> Array:
        g = g.transpose(order)
        for step in steps:  # in any order, as each has an axis of its own
            g = step(g)
        return g.transpose(back)

    return y.transpose(back), (to_x,)
