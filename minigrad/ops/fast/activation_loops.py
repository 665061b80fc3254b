"""Activation functions as a loop each way; ``ops/activation`` has the readable forms.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``fast/activation.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ... import loops
from ...device import Array
from ...pullback import OpResult
from .elementwise_loops import of_elements
from .exponential import exp, expm1, log1p
from .normal_distribution import normal


class Activation(NamedTuple):
    """Loops that write the value, and the gradient from g; the settings come before what is written."""

    value: Callable[..., None]
    gradient: Callable[..., None]


def activation(name: str, x: np.ndarray, *settings: float) -> OpResult:
    """The op called ``name`` of an array that loops take."""
    value, gradient = ACTIVATIONS[name]
    return of_elements(value, x, settings=settings), (
        lambda g: of_elements(gradient, x, g, settings=settings),
    )


@loops.compiled
def write_gelu(x: Array, y: Array) -> None:
    for i in range(len(x)):
        y[i] = x[i] * normal(x[i])[0]


@loops.compiled
def write_gelu_gradient(x: Array, g: Array, d: Array) -> None:
    for i in range(len(x)):
        share, density = normal(x[i])
        d[i] = g[i] * (share + x[i] * density)


@loops.compiled
def write_gelu_by_tanh(x: Array, c: float, cubic: float, y: Array) -> None:
    """x / (1 + e ** -z), z = x (c + cubic x ** 2)."""
    one = x.dtype.type(1)
    for i in range(len(x)):
        y[i] = x[i] / (one + exp(-x[i] * (c + cubic * (x[i] * x[i]))))


@loops.compiled
def write_gelu_by_tanh_gradient(x: Array, g: Array, c: float, cubic: float, d: Array) -> None:
    one, three = x.dtype.type(1), x.dtype.type(3)
    for i in range(len(x)):
        square = x[i] * x[i]
        share = one / (one + exp(-x[i] * (c + cubic * square)))
        slope = x[i] * (share * (one - share)) * (c + three * cubic * square)
        d[i] = g[i] * (share + slope)


@loops.compiled
def write_silu(x: Array, y: Array) -> None:
    one = x.dtype.type(1)
    for i in range(len(x)):
        y[i] = x[i] / (one + exp(-x[i]))


@loops.compiled
def write_silu_gradient(x: Array, g: Array, d: Array) -> None:
    one = x.dtype.type(1)
    for i in range(len(x)):
        share = one / (one + exp(-x[i]))
        d[i] = g[i] * (share * (one + x[i] * (one - share)))


@loops.compiled
def write_softplus(x: Array, beta: float, threshold: float, y: Array) -> None:
    zero = x.dtype.type(0)
    for i in range(len(x)):
        z = x[i] * beta
        value = ((z if z > 0 else zero) + log1p(exp(-abs(z)))) / beta
        y[i] = x[i] if z > threshold else value


@loops.compiled
def write_softplus_gradient(x: Array, g: Array, beta: float, threshold: float, d: Array) -> None:
    one = x.dtype.type(1)
    for i in range(len(x)):
        z = x[i] * beta
        d[i] = g[i] * (one if z > threshold else one / (one + exp(-z)))


@loops.compiled
def write_elu(x: Array, alpha: float, y: Array) -> None:
    for i in range(len(x)):
        y[i] = x[i] if x[i] > 0 else alpha * expm1(x[i])


@loops.compiled
def write_elu_gradient(x: Array, g: Array, alpha: float, d: Array) -> None:
    one = x.dtype.type(1)
    for i in range(len(x)):
        d[i] = g[i] * (one if x[i] > 0 else alpha * exp(x[i]))


@loops.compiled
def write_hardswish(x: Array, y: Array) -> None:
    zero, three, six = x.dtype.type(0), x.dtype.type(3), x.dtype.type(6)
    for i in range(len(x)):
        ramp = x[i] + three
        ramp = zero if ramp < zero else six if ramp > six else ramp
        y[i] = x[i] * ramp / six


@loops.compiled
def write_hardswish_gradient(x: Array, g: Array, d: Array) -> None:
    zero, one, half, three = x.dtype.type(0), x.dtype.type(1), x.dtype.type(0.5), x.dtype.type(3)
    for i in range(len(x)):
        slope = zero if x[i] <= -three else one if x[i] >= three else x[i] / three + half
        d[i] = g[i] * slope


ACTIVATIONS = {
    "gelu": Activation(write_gelu, write_gelu_gradient),
    "gelu_by_tanh": Activation(write_gelu_by_tanh, write_gelu_by_tanh_gradient),
    "silu": Activation(write_silu, write_silu_gradient),
    "softplus": Activation(write_softplus, write_softplus_gradient),
    "elu": Activation(write_elu, write_elu_gradient),
    "hardswish": Activation(write_hardswish, write_hardswish_gradient),
}
