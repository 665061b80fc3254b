"""Convolutions of images and signals, and their transposes.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``nn/__init__.py``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import ops
from ..device import on_gpu
from ..integer_settings import Pair, one, pair
from ..module import Module
from ..ops.conv_pool import pays
from ..tensor import Parameter, Tensor
from .activation import ReLU
from .init import Rng, generator, uniform
from .pool import MaxPool2d


class Convolution(Module):
    """A convolution along the last axes, by a weight drawn uniformly within 1 / sqrt(fan in)."""

    convolve: Callable[..., Tensor]
    axes = 2

    def __init__(
        self,
        n_in: int,
        n_out: int,
        kernel: Pair,
        *,
        stride: Pair = 1,
        padding: Pair | str = 0,
        dilation: Pair = 1,
        groups: int = 1,
        bias: bool = True,
        rng: Rng | int | None = None,
        dtype: Any = np.float32,
    ):
        check_groups(groups, n_in, n_out)
        shape = n_out, n_in // groups, *self.sizes(kernel)
        rng, fan_in = generator(self, rng), math.prod(shape[1:])
        self.weight = Parameter(uniform(rng, shape, fan_in, dtype))
        self.bias = Parameter(uniform(rng, (n_out,), fan_in, dtype)) if bias else None
        self.settings = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}

    def sizes(self, kernel: Pair) -> tuple[int, ...]:
        """The kernel's size along each axis."""
        return pair(kernel, "kernel", 1) if self.axes == 2 else (one(kernel, "kernel", 1),)

    def forward(self, x: Any) -> Tensor:
        inputs = (x, self.weight) if self.bias is None else (x, self.weight, self.bias)
        return self.convolve(*inputs, **self.settings)

    def describe(self) -> str:
        n_out, n_in, *sizes = self.weight.shape
        return f"{n_in * self.settings['groups']}, {n_out}, {one_size(sizes)}{changed(self.settings)}"


class Conv2d(Convolution):
    """Convolution; weight (n_out, n_in / groups, kh, kw) drawn uniformly within 1 / sqrt(fan in).

    Takes images (N, n_in, H, W), returns (N, n_out, H', W') with H' = (H + 2 padding - dilation (kh - 1) - 1)
    // stride + 1, and W' alike. Raises ValueError for other shapes and settings, TypeError without ``rng``.
    ``ops.conv2d`` says how it rounds in float32, and how to have it more exact.

    >>> from minigrad import nn
    >>> nn.Conv2d(3, 8, 5, padding=2, rng=0)(np.zeros((2, 3, 28, 28))).shape
    (2, 8, 28, 28)
    """

    convolve = staticmethod(ops.conv2d)

    def in_one_pass(self, following: Sequence[Module]) -> int:
        """A max pooling with windows side by side, and a ReLU before or after it: see ``ops.conv_pool2d``.

        On a GPU a ReLU alone, too, which one kernel computes with the convolution.
        """
        kinds = [layer.unchanged_type() for layer in following[:2]]
        n = 2 if kinds in ([ReLU, MaxPool2d], [MaxPool2d, ReLU]) else int(kinds[:1] == [MaxPool2d])
        if self.unchanged_type() is not Conv2d:
            return 0
        if n and pooling_in(following[:n])[0].has_tiles():
            return n
        return int(kinds[:1] == [ReLU] and on_gpu(self.weight.data))

    def forward_with(self, x: Any, following: Sequence[Module]) -> Tensor | None:
        if not pays(x, self.weight):
            return None
        inputs = (x, self.weight) if self.bias is None else (x, self.weight, self.bias)
        pools = pooling_in(following)
        kernel, relu = pools[0].settings["kernel"] if pools else 1, len(following) > len(pools)
        return ops.conv_pool2d(*inputs, pool=kernel, relu=relu, **self.settings)


class Conv1d(Convolution):
    """Convolution of signals; weight (n_out, n_in / groups, kernel) drawn as that of ``Conv2d``.

    Takes (N, n_in, L), returns (N, n_out, L') with L' = (L + 2 padding - dilation (kernel - 1) - 1) // stride
    + 1. Its settings are numbers. Raises ValueError for other shapes and settings, TypeError without ``rng``.
    """

    convolve, axes = staticmethod(ops.conv1d), 1


class TransposedConvolution(Convolution):
    """A transposed convolution along the last axes, by a weight drawn uniformly within 1 / sqrt(fan in)."""

    def __init__(
        self,
        n_in: int,
        n_out: int,
        kernel: Pair,
        *,
        stride: Pair = 1,
        padding: Pair = 0,
        output_padding: Pair = 0,
        dilation: Pair = 1,
        groups: int = 1,
        bias: bool = True,
        rng: Rng | int | None = None,
        dtype: Any = np.float32,
    ):
        check_groups(groups, n_in, n_out)
        shape = n_in, n_out // groups, *self.sizes(kernel)
        rng, fan_in = generator(self, rng), math.prod(shape[1:])
        self.weight = Parameter(uniform(rng, shape, fan_in, dtype))
        self.bias = Parameter(uniform(rng, (n_out,), fan_in, dtype)) if bias else None
        self.settings = {"stride": stride, "padding": padding, "output_padding": output_padding}
        self.settings |= {"dilation": dilation, "groups": groups}

    def describe(self) -> str:
        n_in, n_out, *sizes = self.weight.shape
        return f"{n_in}, {n_out * self.settings['groups']}, {one_size(sizes)}{changed(self.settings)}"


class ConvTranspose1d(TransposedConvolution):
    """Transposed convolution of signals; weight (n_in, n_out / groups, kernel) as in ``ConvTranspose2d``.

    Takes (N, n_in, L), returns (N, n_out, L') with L' = (L - 1) stride - 2 padding + dilation (kernel - 1) +
    output_padding + 1. Its settings are numbers. Raises ValueError for other shapes and settings, TypeError
    without ``rng``.
    """

    convolve, axes = staticmethod(ops.conv_transpose1d), 1


class ConvTranspose2d(TransposedConvolution):
    """Transposed convolution; weight (n_in, n_out / groups, kh, kw) drawn uniformly within 1 / sqrt(fan in).

    Takes images (N, n_in, H, W), returns (N, n_out, H', W') with H' = (H - 1) stride - 2 padding + dilation
    (kh - 1) + output_padding + 1, and W' alike. The fan in is n_out / groups * kh * kw, as in PyTorch. Raises
    ValueError for other shapes and settings, TypeError without ``rng``.
    """

    convolve = staticmethod(ops.conv_transpose2d)


def pooling_in(layers: Sequence[Module]) -> list[MaxPool2d]:
    return [layer for layer in layers if isinstance(layer, MaxPool2d)]


def check_groups(groups: int, n_in: int, n_out: int) -> None:
    if groups < 1 or n_in % groups or n_out % groups:
        raise ValueError(f"groups={groups} must divide the {n_in} input and the {n_out} output channels")


def one_size(sizes: list[int]) -> int | tuple[int, ...]:
    """A kernel's sizes, written as one number where they are equal."""
    return sizes[0] if len(set(sizes)) == 1 else tuple(sizes)


def changed(settings: dict[str, Any]) -> str:
    """The settings of a convolution that are not the default ones, for its description."""
    changes = {k: v for k, v in settings.items() if v != (0 if "padding" in k else 1)}
    return "".join(f", {k}={v}" for k, v in changes.items())
