"""Pooling of signals, (N, C, L): a signal is an image of one row.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``ops/__init__.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..tensor import Tensor
from .conv1d import one
from .pool import avg_pool2d, max_pool2d
from .shape import expand_dims, squeeze


def max_pool1d(
    x: Any,
    *,
    kernel: int,
    stride: int | None = None,
    padding: int = 0,
    dilation: int = 1,
    ceil_mode: bool = False,
) -> Tensor:
    """The largest element of each window on x (N, C, L), by the rules of ``max_pool2d``: (N, C, L')."""
    settings = {"dilation": (1, one(dilation, "dilation", 1)), "ceil_mode": ceil_mode}
    return of_one_row(max_pool2d, x, kernel, stride, padding, **settings)


def avg_pool1d(
    x: Any,
    *,
    kernel: int,
    stride: int | None = None,
    padding: int = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """The mean of each window on x (N, C, L), by the rules of ``avg_pool2d``: (N, C, L')."""
    settings = {"ceil_mode": ceil_mode, "count_include_pad": count_include_pad}
    return of_one_row(avg_pool2d, x, kernel, stride, padding, **settings)


def of_one_row(
    pool: Callable[..., Tensor], x: Any, kernel: int, stride: int | None, padding: int, **settings: Any
) -> Tensor:
    """``pool`` of images of one row; raises ValueError for what are no signals."""
    x = x if isinstance(x, Tensor) else Tensor(x)
    if x.ndim != 3:
        raise ValueError(
            f"pooling of signals takes x (N, C, L), got {x.shape}; x[:, None] adds the axis of one channel, "
            "x[None] that of one signal"
        )
    size = one(kernel, "kernel", 1)
    step = size if stride is None else one(stride, "stride", 1)
    padding = one(padding, "padding", 0)
    y = pool(expand_dims(x, axis=2), kernel=(1, size), stride=(1, step), padding=(0, padding), **settings)
    return squeeze(y, axis=2)
