"""Transposed convolution of signals, (N, C, L): a signal is an image of one row.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``ops/__init__.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..keyword_settings import settings_by_name
from ..tensor_base import as_tensor
from .conv1d import on_one_row
from .conv_transpose import conv_transpose2d
from .shape import expand_dims, squeeze

if TYPE_CHECKING:
    from ..tensor import Tensor


@settings_by_name
def conv_transpose1d(
    x: Any,
    weight: Any,
    bias: Any = None,
    *,
    stride: int = 1,
    padding: int = 0,
    output_padding: int = 0,
    dilation: int = 1,
    groups: int = 1,
) -> Tensor:
    """The gradient of conv1d to its signal: x (N, C, L) and weight (C, F / groups, k) give (N, F, L').

    The settings are those of conv_transpose2d, for the one axis. Raises ValueError where something does not
    fit.
    """
    x, weight = (as_tensor(a) for a in (x, weight))
    if x.ndim != 3 or weight.ndim != 3:
        raise ValueError(
            f"conv_transpose1d takes x (N, C, L) and weight (C, F, k), got {x.shape} and {weight.shape}; "
            "x[:, None] adds the axis of one channel, x[None] that of one signal"
        )
    inputs = (expand_dims(x, axis=2), expand_dims(weight, axis=2), *([] if bias is None else [bias]))
    settings = {"stride": stride, "padding": padding, "output_padding": output_padding, "dilation": dilation}
    return squeeze(conv_transpose2d(*inputs, **on_one_row(groups=groups, **settings)), axis=2)
