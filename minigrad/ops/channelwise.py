"""Ops on the channels of images, written for a matrix that has a column for each channel.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``batch_norm.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, cast

from ..device import Array
from ..memory_order import nchw, nhwc
from ..op import op
from ..pullback import OpResult, shape_of
from ..tape import once

if TYPE_CHECKING:
    from ..tensor import Tensor

P = ParamSpec("P")


def channelwise(function: Callable[P, OpResult]) -> Callable[P, Tensor]:
    """``op`` of a function of (N, C) arrays; it gets images as pixels, (N H W, C).

    Signals (N, C, L) are images of one row. Pixels lie so in memory where images are channels-last.
    """

    @wraps(function)
    def of_images(x: Array, *arrays: Any, **settings: Any) -> OpResult:
        if len(shape_of(x)) != 4:
            return cast(Any, function)(x, *arrays, **settings)
        n, channels, rows, columns = x.shape

        def pixels(images: Array) -> Array:
            return nhwc(images).reshape(n * rows * columns, channels)

        def images(pixels: Array) -> Array:
            return nchw(pixels.reshape(n, rows, columns, channels))

        value, (to_x, *others) = cast(Any, function)(pixels(x), *arrays, **settings)
        g_pixels = once(pixels)  # one array for all, so that they share their sums
        to_others = [wraps(pull)(lambda g, pull=pull: pull(g_pixels(g))) for pull in others]
        return images(value), (wraps(to_x)(lambda g: images(to_x(g_pixels(g)))), *to_others)

    return op(of_signals(of_images))


def of_signals(function: Callable[P, OpResult]) -> Callable[P, OpResult]:
    """``function`` of images, which takes signals (N, C, L) too."""

    @wraps(function)
    def with_row(x: Array, *arrays: Any, **settings: Any) -> OpResult:
        if len(shape_of(x)) != 3:
            return cast(Any, function)(x, *arrays, **settings)
        value, (to_x, *others) = cast(Any, function)(x[:, :, None], *arrays, **settings)
        image = once(lambda g: g[:, :, None])  # one array for all, so that they share their sums
        to_others = [wraps(pull)(lambda g, pull=pull: pull(image(g))) for pull in others]
        return value[:, :, 0], (wraps(to_x)(lambda g: to_x(image(g))[:, :, 0]), *to_others)

    return cast("Callable[P, OpResult]", with_row)
