"""Convolution of signals, (N, C, L): a signal is an image of one row.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``ops/__init__.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..device import Array
from ..keyword_settings import settings_by_name
from ..op import op
from ..pullback import OpResult, shape_of
from ..tape import once
from .conv import convolution
from .conv_geometry import checked_geometry, one

if TYPE_CHECKING:
    from ..tensor import Tensor


@settings_by_name
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
    inputs = (x, weight) if bias is None else (x, weight, bias)
    return of_one_row(*inputs, stride=stride, padding=padding, dilation=dilation, groups=groups)


@op
def of_one_row(x: Array, weight: Array, bias: Array | None = None, **settings: Any) -> OpResult:
    """``conv1d``: the convolution of images of one row."""
    if len(shape_of(x)) != 3 or len(shape_of(weight)) != 3:
        raise ValueError(
            f"conv1d takes x (N, C, L) and weight (F, C, k), got {shape_of(x)} and {shape_of(weight)}; "
            "x[:, None] adds the axis of one channel, x[None] that of one signal"
        )
    image, kernel, row = x[:, :, None], weight[:, :, None], once(lambda g: g[:, :, None])
    geometry = checked_geometry(image, kernel, **on_one_row(**settings))
    y, (to_image, to_kernel, *to_bias) = convolution(image, kernel, bias, geometry, "auto")
    pullbacks = (lambda g: to_image(row(g))[:, :, 0], lambda g: to_kernel(row(g))[:, :, 0])
    return y[:, :, 0], (*pullbacks, *(lambda g, pull=pull: pull(row(g)) for pull in to_bias))


def on_one_row(*, groups: int, **settings: Any) -> dict[str, Any]:
    """A signal's settings as an image's: its one row has steps of 1, and no padding above and below."""
    least = {name: int("padding" not in name) for name in settings}
    return {"groups": groups} | {
        name: value if isinstance(value, str) else (least[name], one(value, name, least[name]))
        for name, value in settings.items()
    }
