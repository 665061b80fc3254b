"""Convolution and pooling of signals, (N, C, L): a signal is an image of one row.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``ops/__init__.py``.

>>> from minigrad import ops
>>> ops.conv1d([[[1.0, 2.0, 3.0]]], [[[1.0, 1.0]]]).data.tolist()
[[[3.0, 5.0]]]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from ..integer_settings import one
from ..op import Array, OpResult, Pullback, once, op, settings_by_name, shape_of
from .conv import conv2d, conv_transpose2d
from .pool import avg_pool2d, max_pool2d

if TYPE_CHECKING:
    from ..tensor import Tensor

OF_THE_ROW = {"kernel": 1, "stride": 1, "dilation": 1, "padding": 0, "output_padding": 0}
"""Settings of an image along its columns, of one pixel; a signal's are at least as large."""


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

    Settings as of conv2d, for the one axis. Raises ValueError where something does not fit.
    """
    settings = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    return of_one_row(conv2d, "conv1d takes x (N, C, L) and weight (F, C, k)", x, weight, bias, **settings)


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

    Settings as of conv_transpose2d, for the one axis. Raises ValueError where something does not fit.
    """
    takes = "conv_transpose1d takes x (N, C, L) and weight (C, F, k)"
    settings = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    return of_one_row(conv_transpose2d, takes, x, weight, bias, output_padding=output_padding, **settings)


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
    settings: Any = {"kernel": kernel, "stride": stride, "padding": padding, "dilation": dilation}
    return of_one_row(max_pool2d, "pooling takes signals (N, C, L)", x, ceil_mode=ceil_mode, **settings)


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
    settings: Any = {"kernel": kernel, "stride": stride, "padding": padding, "ceil_mode": ceil_mode}
    takes = "pooling takes signals (N, C, L)"
    return of_one_row(avg_pool2d, takes, x, count_include_pad=count_include_pad, **settings)


def of_one_row(images: Callable[..., Tensor], takes: str, *inputs: Any, **settings: Any) -> Tensor:
    """The op ``images`` of signals as images of one row; an error says what the op for signals ``takes``."""
    for name, value in settings.items():
        least = OF_THE_ROW.get(name)
        if least is not None and value is not None and not isinstance(value, str):
            settings[name] = least, one(value, name, least)
    return signals_as_images(
        *[x for x in inputs if x is not None], images=images, takes=takes, settings=settings
    )


@op
def signals_as_images(
    *arrays: Array, images: Callable[..., Tensor], takes: str, settings: dict[str, Any]
) -> OpResult:
    shapes = [shape_of(a) for a in arrays[:2]]  # of x and perhaps a weight
    if any([len(shape) != 3 for shape in shapes]):
        if len(shapes) == 1:
            raise ValueError(f"{takes}, got shape {shapes[0]}")
        raise ValueError(
            f"{takes}, got {shapes[0]} and {shapes[1]}; x[:, None] adds the axis of one channel, "
            "x[None] that of one signal"
        )
    compute = cast(Any, images).__wrapped__  # the function of arrays
    y, pullbacks = compute(*[a[:, :, None] for a in arrays[:2]], *arrays[2:], **settings)
    row = once(lambda g: g[:, :, None])  # one array for all pullbacks, which share its copies

    def of_signals(pullback: Pullback) -> Pullback:
        def without_row(g: Array) -> Array:
            d = pullback(row(g))
            return d[:, :, 0] if d.ndim == 4 else d  # a bias has no row

        without_row.__qualname__ = pullback.__qualname__  # an error names the op by it
        return without_row

    return y[:, :, 0], tuple(map(of_signals, pullbacks))
