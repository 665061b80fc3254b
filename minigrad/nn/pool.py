"""Pooling windows, and images of another size.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``nn/__init__.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from .. import ops
from ..integer_settings import Pair
from ..module import Module
from ..ops.resize import Sizes
from ..tensor import Tensor


class Pool(Module):
    """Windows that the ``op`` of the class pools; its first setting describes a layer.

    ``stride`` defaults to ``kernel``, and of signals each setting is one number.
    """

    op: ClassVar[Callable[..., Tensor]]
    settings: dict[str, Any]

    def forward(self, x: Any) -> Tensor:
        return type(self).op(x, **self.settings)

    def describe(self) -> str:
        return str(next(iter(self.settings.values())))


class MaxPool(Pool):
    """The largest element of each window."""

    def __init__(
        self,
        kernel: Pair,
        *,
        stride: Pair | None = None,
        padding: Pair = 0,
        dilation: Pair = 1,
        ceil_mode: bool = False,
    ):
        self.settings = {"kernel": kernel, "stride": stride, "padding": padding, "dilation": dilation}
        self.settings["ceil_mode"] = ceil_mode


class AvgPool(Pool):
    """The mean of each window."""

    def __init__(
        self,
        kernel: Pair,
        *,
        stride: Pair | None = None,
        padding: Pair = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ):
        self.settings = {"kernel": kernel, "stride": stride, "padding": padding, "ceil_mode": ceil_mode}
        self.settings["count_include_pad"] = count_include_pad


class MaxPool2d(MaxPool):
    """The largest element of each window: (N, C, H, W) becomes (N, C, H', W'), else ValueError.

    >>> from minigrad import nn
    >>> nn.MaxPool2d(2)([[[[1.0, 2.0], [3.0, 4.0]]]]).data.tolist()
    [[[[4.0]]]]
    """

    op = staticmethod(ops.max_pool2d)

    def has_tiles(self) -> bool:
        """Whether windows stand side by side, on images without padding."""
        kernel, stride, *others = self.settings.values()
        return stride in (None, kernel) and tuple(others) in ((0, 1, False), ((0, 0), (1, 1), False))


class AvgPool2d(AvgPool):
    """The mean of each window: (N, C, H, W) becomes (N, C, H', W'), else ValueError."""

    op = staticmethod(ops.avg_pool2d)


class MaxPool1d(MaxPool):
    """The largest element of each window: (N, C, L) becomes (N, C, L'), else ValueError."""

    op = staticmethod(ops.max_pool1d)


class AvgPool1d(AvgPool):
    """The mean of each window: (N, C, L) becomes (N, C, L'), else ValueError."""

    op = staticmethod(ops.avg_pool1d)


class AdaptivePool(Pool):
    """Windows that make images (N, C, H, W) to (N, C, *output_size); 1 pools all of an image."""

    def __init__(self, output_size: Sizes):
        self.settings = {"output_size": output_size}


class AdaptiveAvgPool2d(AdaptivePool):
    """The mean of each window of ``ops.adaptive_avg_pool2d``."""

    op = staticmethod(ops.adaptive_avg_pool2d)


class AdaptiveMaxPool2d(AdaptivePool):
    """The largest element of each window of ``ops.adaptive_max_pool2d``."""

    op = staticmethod(ops.adaptive_max_pool2d)


class Upsample(Module):
    """Images of another size, by a factor or to a size: see ``ops.interpolate``."""

    def __init__(
        self,
        scale_factor: float | tuple[float, float] | None = None,
        *,
        size: Pair | None = None,
        mode: str = "nearest",
        align_corners: bool = False,
    ):
        self.settings: dict[str, Any] = {"scale_factor": scale_factor, "size": size, "mode": mode}
        self.settings["align_corners"] = align_corners

    def forward(self, x: Any) -> Tensor:
        return ops.interpolate(x, **self.settings)

    def describe(self) -> str:
        factor, size, mode, aligned = self.settings.values()
        return f"{factor or f'size={size}'}, mode={mode}{', align_corners=True' * aligned}"
