"""Convolution of signals, (N, C, L): a signal is an image of one row.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``ops/__init__.py``.
"""

from __future__ import annotations

from typing import Any

from ..tensor import Tensor
from .conv import conv2d
from .geometry import are_integers
from .shape import expand_dims, squeeze


def conv1d(
    x: Any,
    weight: Any,
    bias: Any = None,
    *,
    stride: int = 1,
    padding: int | str = 0,
    dilation: int = 1,
    groups: int = 1,
) -> Tensor:
    """Slide weight (F, C / groups, k) over x (N, C, L): (N, F, L'), plus bias (F,).

    The settings are those of conv2d, for the one axis. Raises ValueError where something does not fit.
    """
    x, weight = (a if isinstance(a, Tensor) else Tensor(a) for a in (x, weight))
    if x.ndim != 3 or weight.ndim != 3:
        raise ValueError(
            f"conv1d takes x (N, C, L) and weight (F, C, k), got {x.shape} and {weight.shape}; x[:, None] "
            "adds the axis of one channel, x[None] that of one signal"
        )
    inputs = (expand_dims(x, axis=2), expand_dims(weight, axis=2), *([] if bias is None else [bias]))
    y = conv2d(
        *inputs,
        stride=(1, one(stride, "stride", 1)),
        padding=padding if isinstance(padding, str) else (0, one(padding, "padding", 0)),
        dilation=(1, one(dilation, "dilation", 1)),
        groups=groups,
    )
    return squeeze(y, axis=2)


def one(value: Any, name: str, least: int) -> int:
    """A setting for the one axis of a signal, given as a number or as a sequence of one."""
    if are_integers(value, 1, least):
        value = value[0]
    if not are_integers((value,), 1, least):
        raise ValueError(f"{name} must be an integer of at least {least}, got {value}")
    return int(value)
