"""Pooling of signals, (N, C, L): a signal is an image of one row.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``ops/__init__.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..keyword_settings import settings_by_name
from ..tensor_base import as_tensor
from .conv1d import one
from .pool import avg_pool2d, max_pool2d
from .shape import expand_dims, squeeze

if TYPE_CHECKING:
    from ..tensor import Tensor


@settings_by_name
def max_pool1d(
    x: Any,
    *,
    kernel: int,
    stride: int | None = None,
    padding: int = 0,
    dilation: int = 1,
    ceil_mode: bool = False,
) -> Tensor:
    """The largest element of each window of (N, C, L); settings, gradient and errors as in ``max_pool2d``."""
    settings: Any = {"dilation": (1, one(dilation, "dilation", 1)), "ceil_mode": ceil_mode}
    return of_row(max_pool2d, x, kernel, stride, padding, **settings)


@settings_by_name
def avg_pool1d(
    x: Any,
    *,
    kernel: int,
    stride: int | None = None,
    padding: int = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """The mean of each window of (N, C, L); settings and errors as in ``avg_pool2d``."""
    settings = {"ceil_mode": ceil_mode, "count_include_pad": count_include_pad}
    return of_row(avg_pool2d, x, kernel, stride, padding, **settings)


def of_row(pool: Callable, x: Any, kernel: int, stride: int | None, padding: int, **settings: Any) -> Tensor:
    """``pool`` of images (N, C, 1, L); raises ValueError where x is no (N, C, L)."""
    x = as_tensor(x)
    if x.ndim != 3:
        raise ValueError(f"pooling takes signals (N, C, L), got shape {x.shape}")
    y = pool(
        expand_dims(x, axis=2),
        kernel=(1, one(kernel, "kernel", 1)),
        stride=None if stride is None else (1, one(stride, "stride", 1)),
        padding=(0, one(padding, "padding", 0)),
        **settings,
    )
    return squeeze(y, axis=2)
