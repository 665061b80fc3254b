"""Activation functions of several steps; as the ops of ``elementwise`` they treat every element alone.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``ops/__init__.py``. Each stands as formulas
of whole arrays, and in ``activation_kernels`` and ``activation_loops`` as a kernel and a loop each way.
"""

from __future__ import annotations

import math

from .. import loops
from ..device import Array, array_module, on_gpu
from ..lookup import check_choice
from ..op import OpResult
from . import activation_kernels, activation_loops
from .elementwise import elementwise, floating, logistic
from .normal_distribution import normal_density, normal_distribution


def fast_form(name: str, x: Array, *settings: float) -> OpResult | None:
    """The op called ``name`` as a kernel on a GPU, or as a loop on the host; None where loops do not fit."""
    if on_gpu(x):
        return activation_kernels.activation(name, x, *settings)
    return activation_loops.activation(name, x, *settings) if loops.can_take(x) else None


@elementwise
def gelu(x: Array, *, approximate: str = "none") -> OpResult:
    """x times the normal distribution function of x (Hendrycks and Gimpel 2016).

    ``approximate="tanh"`` is the paper's faster form, as in GPT-2, which differs by up to 5e-4. Raises
    ValueError for any other value than these two.
    """
    check_choice("approximation", approximate, ("none", "tanh"))
    x = floating(x)
    if approximate == "tanh":
        return gelu_by_tanh(x)
    if fast := fast_form("gelu", x):
        return fast
    return x * normal_distribution(x), (lambda g: g * (normal_distribution(x) + x * normal_density(x)),)


def gelu_by_tanh(x: Array) -> OpResult:
    c = 2 * math.sqrt(2 / math.pi)
    if loops.can_take(x):
        return activation_loops.activation("gelu_by_tanh", x, c, c * 0.044715)
    share = logistic(c * (x + 0.044715 * (x * x * x)))  # (1 + tanh(z)) / 2, without its cancellation

    def to_x(g: Array) -> Array:
        return g * (share + c * x * (share * (1 - share)) * (1 + 0.134145 * (x * x)))

    return x * share, (to_x,)


@elementwise
def silu(x: Array) -> OpResult:
    """x sigmoid(x), which is also called swish (Hendrycks and Gimpel 2016)."""
    x = floating(x)
    if fast := fast_form("silu", x):
        return fast

    def to_x(g: Array) -> Array:
        share = logistic(x)
        return g * (share * (1 + x * (1 - share)))

    return x * logistic(x), (to_x,)


@elementwise
def softplus(x: Array, *, beta: float = 1.0, threshold: float = 20.0) -> OpResult:
    """log(1 + e ** (beta x)) / beta, and x itself where beta x > ``threshold``, as in PyTorch.

    Raises ValueError unless beta is positive.
    """
    if not beta > 0:
        raise ValueError(f"beta must be positive, got {beta}")
    x = floating(x)
    return fast_form("softplus", x, beta, threshold) or softplus_by_passes(x, beta, threshold)


@elementwise
def log_sigmoid(x: Array) -> OpResult:
    """log(sigmoid(x)), with all its digits on both sides: -softplus(-x)."""
    x = floating(x)
    if on_gpu(x):
        return activation_kernels.activation("log_sigmoid", x)
    return fast_form("softplus", x, -1.0, math.inf) or softplus_by_passes(x, -1.0, math.inf)


def softplus_by_passes(x: Array, beta: float, threshold: float) -> OpResult:
    """log(1 + e ** z), z = beta x, is max(z, 0) + log(1 + e ** -|z|)."""
    xp, z = array_module(x), x * beta
    y = (xp.maximum(z, 0) + xp.log1p(xp.exp(-abs(z)))) / beta
    linear = z > threshold
    return xp.where(linear, x, y), (lambda g: g * xp.where(linear, 1, logistic(z)),)


@elementwise
def elu(x: Array, *, alpha: float = 1.0) -> OpResult:
    """x where positive, else alpha (e ** x - 1) (Clevert, Unterthiner and Hochreiter 2016)."""
    x = floating(x)
    if fast := fast_form("elu", x, alpha):
        return fast
    xp = array_module(x)
    below = xp.minimum(x, 0)
    value = xp.where(x > 0, x, alpha * xp.expm1(below))
    return value, (lambda g: g * xp.where(x > 0, 1, alpha * xp.exp(below)),)


@elementwise
def hardswish(x: Array) -> OpResult:
    """x times a ramp from 0 at -3 to 1 at 3 (Howard et al. 2019); at -3 its slope is 0, at 3 it is 1."""
    x = floating(x)
    if fast := fast_form("hardswish", x):
        return fast
    xp = array_module(x)

    def to_x(g: Array) -> Array:
        return g * xp.where(x <= -3, 0, xp.where(x >= 3, 1, x / 3 + 0.5))

    return x * xp.clip(x + 3, 0, 6) / 6, (to_x,)
