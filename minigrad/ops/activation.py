"""Activation functions of several steps; as the ops of ``elementwise`` they treat every element alone.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``ops/__init__.py``.

>>> from minigrad import ops
>>> ops.gelu([0.0, 1.0]).data.round(3).tolist()
[0.0, 0.841]
"""

from __future__ import annotations

import math

from ..normal_distribution import normal_density, normal_distribution
from ..op import Array, OpResult, array_module, check_choice, faster, floating, half_in_single
from .elementwise import elementwise, logistic


@elementwise
@half_in_single
@faster
def gelu(x: Array, *, approximate: str = "none") -> OpResult:
    """x times the normal distribution function of x (Hendrycks and Gimpel 2016).

    ``approximate="tanh"`` is the paper's faster form, as in GPT-2, which differs by up to 5e-4. Raises
    ValueError for any other value than these two.
    """
    check_choice("approximation", approximate, ("none", "tanh"))
    x = floating(x)
    if approximate == "none":
        return exact_gelu(x)
    c = 2 * math.sqrt(2 / math.pi)  # x (1 + tanh(z)) / 2, z = sqrt(2 / pi) (x + 0.044715 x ** 3)
    share = logistic(c * (x + 0.044715 * (x * x * x)))  # (1 + tanh(z)) / 2, without its cancellation
    return x * share, (lambda g: g * (share + c * x * (share * (1 - share)) * (1 + 0.134145 * (x * x))),)


@half_in_single
@faster
def exact_gelu(x: Array) -> OpResult:
    """x times the normal distribution function of x."""
    x = floating(x)
    return x * normal_distribution(x), (lambda g: g * (normal_distribution(x) + x * normal_density(x)),)


@elementwise
@half_in_single
@faster
def silu(x: Array) -> OpResult:
    """x sigmoid(x), which is also called swish (Hendrycks and Gimpel 2016)."""
    x = floating(x)
    share = logistic(x)
    return x * share, (lambda g: g * (share * (1 + x * (1 - share))),)


@elementwise
@half_in_single
@faster
def softplus(x: Array, *, beta: float = 1.0, threshold: float = 20.0) -> OpResult:
    """log(1 + e ** (beta x)) / beta, and x itself where beta x > ``threshold``, as in PyTorch.

    Raises ValueError unless beta is positive.
    """
    if not beta > 0:
        raise ValueError(f"beta must be positive, got {beta}")
    xp, x = array_module(x), floating(x)
    z = beta * x
    y = (xp.maximum(z, 0) + xp.log1p(xp.exp(-abs(z)))) / beta  # e ** z alone may overflow
    linear = z > threshold
    return xp.where(linear, x, y), (lambda g: g * xp.where(linear, 1, logistic(z)),)


@elementwise
@half_in_single
@faster
def log_sigmoid(x: Array) -> OpResult:
    """log(sigmoid(x)), with all its digits on both sides: -softplus(-x)."""
    xp, x = array_module(x), floating(x)
    return xp.minimum(x, 0) - xp.log1p(xp.exp(-abs(x))), (lambda g: g * logistic(-x),)


@elementwise
@half_in_single
@faster
def elu(x: Array, *, alpha: float = 1.0) -> OpResult:
    """x where positive, else alpha (e ** x - 1) (Clevert, Unterthiner and Hochreiter 2016)."""
    xp, x = array_module(x), floating(x)
    below = xp.minimum(x, 0)
    value = xp.where(x > 0, x, alpha * xp.expm1(below))
    return value, (lambda g: g * xp.where(x > 0, 1, alpha * xp.exp(below)),)


@elementwise
@half_in_single
@faster
def hardswish(x: Array) -> OpResult:
    """x times a ramp from 0 at -3 to 1 at 3 (Howard et al. 2019); at -3 its slope is 0, at 3 it is 1."""
    xp, x = array_module(x), floating(x)
    y = x * xp.clip(x + 3, 0, 6) / 6
    return y, (lambda g: g * xp.where(x <= -3, 0, xp.where(x >= 3, 1, x / 3 + 0.5)),)
