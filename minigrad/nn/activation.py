"""Functions of each element, and softmax.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``nn/__init__.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from .. import ops
from ..lookup import check_choice
from ..module import Module
from ..tensor import Tensor
from ..tensor_base import as_tensor


class Identity(Module):
    """Gives its input as it is; it stands where a net may have another layer, or none."""

    token_wise = True

    def forward(self, x: Any) -> Tensor:
        return as_tensor(x)


class Flatten(Module):
    """(N, ...) to (N, features)."""

    def forward(self, x: Any) -> Tensor:
        return ops.flatten(x, start_axis=1)


class Activation(Module):
    """A layer without settings, which applies the ``op`` of its class to each element or token."""

    token_wise = True
    op: ClassVar[Callable[..., Tensor]]

    def forward(self, x: Any) -> Tensor:
        return type(self).op(x)


class ReLU(Activation):
    """max(x, 0).

    >>> from minigrad import nn
    >>> nn.ReLU()([-1.0, 2.0]).data.tolist()
    [0.0, 2.0]
    """

    op = staticmethod(ops.relu)


class LeakyReLU(Module):
    """x where positive, else ``slope`` * x."""

    token_wise = True

    def __init__(self, slope: float = 0.01):
        self.slope = slope

    def forward(self, x: Any) -> Tensor:
        return ops.leaky_relu(x, slope=self.slope)

    def describe(self) -> str:
        return str(self.slope)


class GELU(Module):
    """x times the normal distribution function, or with ``approximate="tanh"`` nearly so."""

    token_wise = True

    def __init__(self, approximate: str = "none"):
        check_choice("approximation", approximate, ("none", "tanh"))
        self.approximate = approximate

    def forward(self, x: Any) -> Tensor:
        return ops.gelu(x, approximate=self.approximate)

    def describe(self) -> str:
        return "" if self.approximate == "none" else f"approximate={self.approximate!r}"


class SiLU(Activation):
    """x sigmoid(x)."""

    op = staticmethod(ops.silu)


class Softplus(Module):
    """log(1 + e ** (beta x)) / beta, and x where beta x > ``threshold``."""

    token_wise = True

    def __init__(self, beta: float = 1.0, threshold: float = 20.0):
        self.beta, self.threshold = beta, threshold

    def forward(self, x: Any) -> Tensor:
        return ops.softplus(x, beta=self.beta, threshold=self.threshold)

    def describe(self) -> str:
        return f"beta={self.beta}, threshold={self.threshold}"


class ELU(Module):
    """x where positive, else ``alpha`` (e ** x - 1)."""

    token_wise = True

    def __init__(self, alpha: float = 1.0):
        self.alpha = alpha

    def forward(self, x: Any) -> Tensor:
        return ops.elu(x, alpha=self.alpha)

    def describe(self) -> str:
        return str(self.alpha)


class LogSigmoid(Activation):
    """log(sigmoid(x))."""

    op = staticmethod(ops.log_sigmoid)


class Hardswish(Activation):
    """x times a ramp from 0 at -3 to 1 at 3."""

    op = staticmethod(ops.hardswish)


class Sigmoid(Activation):
    """1 / (1 + e ** -x)."""

    op = staticmethod(ops.sigmoid)


class Tanh(Activation):
    """The hyperbolic tangent."""

    op = staticmethod(ops.tanh)


class Softmax(Activation):
    """exp(x) / sum(exp(x)) along the last axis."""

    op = staticmethod(ops.softmax)


def activation_of(layer: Module) -> str:
    """The setting of ``ops.linear`` for a layer that it can compute, "none" for another one."""
    kind = layer.unchanged_type()
    if kind is ReLU:
        return "relu"
    exact = isinstance(layer, GELU) and layer.approximate == "none"
    return "gelu" if kind is GELU and exact else "none"
