"""Layers: modules that apply one op each. Randomness is always the explicit ``rng=``."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from . import ops
from .module import Module, Sequential
from .normalisation import BatchNorm, GhostBatchNorm, LayerNorm
from .ops.conv import Pair, pair
from .ops.dropout import check_probability
from .tape import current_tape
from .tensor import Parameter, Tensor

__all__ = [
    "AvgPool2d",
    "BatchNorm",
    "Conv2d",
    "Dropout",
    "Embedding",
    "Flatten",
    "GELU",
    "GhostBatchNorm",
    "LayerNorm",
    "LeakyReLU",
    "Linear",
    "MaxPool2d",
    "Module",
    "ReLU",
    "Sequential",
    "Sigmoid",
    "Softmax",
    "Tanh",
]

Rng = np.random.Generator


class Linear(Module):
    """y = x w.T + b, weight (n_out, n_in) drawn uniformly within 1 / sqrt(n_in)."""

    def __init__(self, n_in: int, n_out: int, *, rng: Rng, bias: bool = True, dtype: Any = np.float32):
        self.weight = Parameter(uniform(rng, (n_out, n_in), n_in, dtype))
        self.bias = Parameter(uniform(rng, (n_out,), n_in, dtype)) if bias else None

    def forward(self, x: Any) -> Tensor:
        return ops.linear(x, self.weight) if self.bias is None else ops.linear(x, self.weight, self.bias)

    def describe(self) -> str:
        n_out, n_in = self.weight.shape
        return f"{n_in}, {n_out}"


class Conv2d(Module):
    """Convolution; weight (n_out, n_in / groups, kh, kw) drawn uniformly within 1 / sqrt(fan in)."""

    def __init__(
        self,
        n_in: int,
        n_out: int,
        kernel: Pair,
        *,
        stride: Pair = 1,
        padding: Pair = 0,
        dilation: Pair = 1,
        groups: int = 1,
        bias: bool = True,
        rng: Rng,
        dtype: Any = np.float32,
    ):
        if groups < 1 or n_in % groups or n_out % groups:
            raise ValueError(f"groups={groups} must divide the {n_in} input and the {n_out} output channels")
        kh, kw = pair(kernel, "kernel", 1)
        fan_in = n_in // groups * kh * kw
        self.weight = Parameter(uniform(rng, (n_out, n_in // groups, kh, kw), fan_in, dtype))
        self.bias = Parameter(uniform(rng, (n_out,), fan_in, dtype)) if bias else None
        self.settings = {
            "stride": stride,
            "padding": padding,
            "dilation": dilation,
            "groups": groups,
        }

    def forward(self, x: Any) -> Tensor:
        inputs = (x, self.weight) if self.bias is None else (x, self.weight, self.bias)
        return ops.conv2d(*inputs, **self.settings)

    def describe(self) -> str:
        n_out, n_in, kh, kw = self.weight.shape
        changed = {k: v for k, v in self.settings.items() if v != (0 if k == "padding" else 1)}
        kernel = kh if kh == kw else (kh, kw)
        return ", ".join(
            [
                f"{n_in * self.settings['groups']}, {n_out}, {kernel}",
                *(f"{k}={v}" for k, v in changed.items()),
            ]
        )


class Pool(Module):
    """A pooling window; ``stride`` defaults to ``kernel``."""

    def __init__(self, kernel: Pair, *, stride: Pair | None = None, padding: Pair = 0):
        self.settings = {"kernel": kernel, "stride": stride, "padding": padding}

    def describe(self) -> str:
        return str(self.settings["kernel"])


class MaxPool2d(Pool):
    """The largest element of each window."""

    def forward(self, x: Any) -> Tensor:
        return ops.max_pool2d(x, **self.settings)


class AvgPool2d(Pool):
    """The mean of each window."""

    def forward(self, x: Any) -> Tensor:
        return ops.avg_pool2d(x, **self.settings)


class Embedding(Module):
    """A table of ``rows`` vectors of ``width``, looked up by integer."""

    def __init__(self, rows: int, width: int, *, rng: Rng, dtype: Any = np.float32):
        self.weight = Parameter(rng.normal(size=(rows, width)).astype(dtype))

    def forward(self, x: Any) -> Tensor:
        return ops.embedding(self.weight, x)

    def describe(self) -> str:
        return "{}, {}".format(*self.weight.shape)


class Dropout(Module):
    """Zeroes each element with probability ``p`` under an open tape; with none it is the identity."""

    def __init__(self, p: float = 0.5, *, rng: Rng):
        check_probability(p)
        self.p, self.rng = p, rng

    def forward(self, x: Any) -> Tensor:
        if current_tape.get() is None:
            return x if isinstance(x, Tensor) else Tensor(x)
        return ops.dropout(x, p=self.p, rng=self.rng)

    def describe(self) -> str:
        return str(self.p)


class Flatten(Module):
    """(N, ...) to (N, features)."""

    def forward(self, x: Any) -> Tensor:
        return ops.flatten(x, start_axis=1)


class ReLU(Module):
    """max(x, 0)."""

    def forward(self, x: Any) -> Tensor:
        return ops.relu(x)


class LeakyReLU(Module):
    """x where positive, else ``slope`` * x."""

    def __init__(self, slope: float = 0.01):
        self.slope = slope

    def forward(self, x: Any) -> Tensor:
        return ops.leaky_relu(x, slope=self.slope)

    def describe(self) -> str:
        return str(self.slope)


class GELU(Module):
    """x times the normal distribution function, in its tanh form."""

    def forward(self, x: Any) -> Tensor:
        return ops.gelu(x)


class Sigmoid(Module):
    """1 / (1 + e ** -x)."""

    def forward(self, x: Any) -> Tensor:
        return ops.sigmoid(x)


class Tanh(Module):
    """The hyperbolic tangent."""

    def forward(self, x: Any) -> Tensor:
        return ops.tanh(x)


class Softmax(Module):
    """exp(x) / sum(exp(x)) along the last axis."""

    def forward(self, x: Any) -> Tensor:
        return ops.softmax(x)


def uniform(rng: Rng, shape: tuple[int, ...], fan_in: int, dtype: Any) -> np.ndarray:
    """Uniform within 1 / sqrt(fan_in), PyTorch's default for linear and convolution layers."""
    bound = 1 / math.sqrt(max(fan_in, 1))
    return rng.uniform(-bound, bound, shape).astype(dtype)
