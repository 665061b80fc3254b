"""Pooling windows, and images of another size.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``nn/__init__.py``.
"""

from __future__ import annotations

from typing import Any

from .. import ops
from ..integer_settings import Pair
from ..module import Module
from ..ops.resize import Sizes
from ..tensor import Tensor


class Pool(Module):
    """A pooling window; ``stride`` defaults to ``kernel``."""

    def __init__(self, kernel: Pair, *, stride: Pair | None = None, padding: Pair = 0, **settings: Any):
        self.settings = {"kernel": kernel, "stride": stride, "padding": padding, **settings}

    def describe(self) -> str:
        return str(self.settings["kernel"])


class MaxPool2d(Pool):
    """The largest element of each window: (N, C, H, W) becomes (N, C, H', W'), else ValueError."""

    def __init__(
        self,
        kernel: Pair,
        *,
        stride: Pair | None = None,
        padding: Pair = 0,
        dilation: Pair = 1,
        ceil_mode: bool = False,
    ):
        super().__init__(kernel, stride=stride, padding=padding, dilation=dilation, ceil_mode=ceil_mode)

    def forward(self, x: Any) -> Tensor:
        return ops.max_pool2d(x, **self.settings)

    def has_tiles(self) -> bool:
        """Whether windows stand side by side, on images without padding."""
        kernel, stride, *others = self.settings.values()
        return stride in (None, kernel) and tuple(others) in ((0, 1, False), ((0, 0), (1, 1), False))


class AvgPool2d(Pool):
    """The mean of each window: (N, C, H, W) becomes (N, C, H', W'), else ValueError."""

    def __init__(
        self,
        kernel: Pair,
        *,
        stride: Pair | None = None,
        padding: Pair = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ):
        settings = {"ceil_mode": ceil_mode, "count_include_pad": count_include_pad}
        super().__init__(kernel, stride=stride, padding=padding, **settings)

    def forward(self, x: Any) -> Tensor:
        return ops.avg_pool2d(x, **self.settings)


class MaxPool1d(Pool):
    """The largest element of each window: (N, C, L) becomes (N, C, L'), else ValueError."""

    def __init__(
        self,
        kernel: int,
        *,
        stride: int | None = None,
        padding: int = 0,
        dilation: int = 1,
        ceil_mode: bool = False,
    ):
        super().__init__(kernel, stride=stride, padding=padding, dilation=dilation, ceil_mode=ceil_mode)

    def forward(self, x: Any) -> Tensor:
        return ops.max_pool1d(x, **self.settings)


class AvgPool1d(Pool):
    """The mean of each window: (N, C, L) becomes (N, C, L'), else ValueError."""

    def __init__(
        self,
        kernel: int,
        *,
        stride: int | None = None,
        padding: int = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ):
        settings = {"ceil_mode": ceil_mode, "count_include_pad": count_include_pad}
        super().__init__(kernel, stride=stride, padding=padding, **settings)

    def forward(self, x: Any) -> Tensor:
        return ops.avg_pool1d(x, **self.settings)


class AdaptivePool(Module):
    """Windows that make images (N, C, H, W) to (N, C, *output_size); 1 pools all of an image."""

    def __init__(self, output_size: Sizes):
        self.output_size = output_size

    def describe(self) -> str:
        return str(self.output_size)


class AdaptiveAvgPool2d(AdaptivePool):
    """The mean of each window of ``ops.adaptive_avg_pool2d``."""

    def forward(self, x: Any) -> Tensor:
        return ops.adaptive_avg_pool2d(x, output_size=self.output_size)


class AdaptiveMaxPool2d(AdaptivePool):
    """The largest element of each window of ``ops.adaptive_max_pool2d``."""

    def forward(self, x: Any) -> Tensor:
        return ops.adaptive_max_pool2d(x, output_size=self.output_size)


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
