"""Ops of elements keep the memory order of images, whose channels lie side by side ("channels-last").

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``elementwise.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from .device import Array, array_module
from .pullback import OpResult, Pullback, shape_of


def in_memory_order(function: Callable[..., OpResult]) -> Callable[..., OpResult]:
    """``function``, which treats each element alone, of images channels-last as (N, H, W, C) arrays.

    NumPy's functions write in the memory order of their operands, CuPy's in C order, which here is the same.
    """

    def turned(x: Any) -> Any:
        ndim = len(shape_of(x))  # what has no axes broadcasts anyway
        return x[(None,) * (4 - ndim)].transpose(0, 2, 3, 1) if ndim else x

    def turned_pullback(pullback: Pullback) -> Pullback:
        return wraps(pullback)(lambda g: nchw(pullback(g.transpose(0, 2, 3, 1))))

    @wraps(function)
    def ordered(*arrays: Any, **settings: Any) -> OpResult:
        if not any(map(is_channels_last, arrays)) or any(len(shape_of(x)) > 4 for x in arrays):
            return function(*arrays, **settings)
        value, pullbacks = function(*map(turned, arrays), **settings)
        return nchw(value), tuple(pull and turned_pullback(pull) for pull in pullbacks)

    return ordered


def is_channels_last(x: Any) -> bool:
    """Whether ``x`` are images whose channels lie closer together in memory than their columns."""
    return len(shape_of(x)) == 4 and x.strides[1] < x.strides[3]


def nhwc(x: Array) -> Array:
    """Images as a contiguous (N, H, W, C) array; free when they are channels-last in memory."""
    return array_module(x).ascontiguousarray(x.transpose(0, 2, 3, 1))


def nchw(x: Array) -> Array:
    """(N, H, W, C) as the (N, C, H, W) view that ops hand out."""
    return x.transpose(0, 3, 1, 2)


def channels_last(x: Array, *sizes: int) -> tuple[Callable[[Array], Array], Callable[[Array], Array]]:
    """Two functions: from arrays (N, C, ...) like x to contiguous ones (*sizes, C), and back as views."""
    xp = array_module(x)
    if x.ndim == 2 and len(sizes) == 1:
        return xp.ascontiguousarray, lambda a: a
    (n, channels, *others), last = x.shape, x.ndim - 1
    order, back = (0, *range(2, last + 1), 1), (0, last, *range(1, last))

    def pixels(a: Array) -> Array:
        return xp.ascontiguousarray(a.transpose(order)).reshape(*sizes, channels)

    def images(a: Array) -> Array:
        return a.reshape(n, *others, channels).transpose(back)

    return pixels, images
