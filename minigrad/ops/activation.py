"""Activation functions of several steps; as the ops of ``elementwise`` they treat every element alone.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``ops/__init__.py``. On a GPU each is one
kernel forward and one backward (``activation_kernels``); the forms for NumPy go through the array in parts.
"""

from __future__ import annotations

import math

import numpy as np

from ..device import Array, array_module
from ..lookup import check_choice
from ..op import OpResult
from . import activation_kernels as kernels
from .blocks import in_blocks
from .elementwise import elementwise, floating, logistic
from .normal_distribution import normal_density, normal_distribution


@elementwise
def gelu(x: Array, *, approximate: str = "none") -> OpResult:
    """x times the normal distribution function of x (Hendrycks and Gimpel 2016).

    ``approximate="tanh"`` is the paper's faster form, as in GPT-2, which differs by up to 5e-4. Raises
    ValueError for any other value than these two.
    """
    check_choice("approximation", approximate, ("none", "tanh"))
    if approximate == "tanh":
        return gelu_by_tanh(x)
    x = floating(x)
    if array_module(x) is not np:
        return kernels.activation("gelu", x)

    def value(x: Array, y: Array, share: Array) -> None:
        normal_distribution(x, out=share)
        np.multiply(x, share, out=y)

    def slope(x: Array, g: Array, share: Array, d: Array) -> None:
        normal_density(x, out=d)
        d *= x
        d += share
        d *= g

    y, share = in_blocks(value, x, outputs=2)
    return y, (lambda g: in_blocks(slope, x, g, share)[0],)


def gelu_by_tanh(x: Array) -> OpResult:
    c = math.sqrt(2 / math.pi)
    if array_module(x) is not np:
        share = logistic(2 * c * (x + 0.044715 * (x * x * x)))  # (1 + tanh(z)) / 2, without its cancellation

        def to_x(g: Array) -> Array:
            return g * (share + 2 * c * x * (share * (1 - share)) * (1 + 0.134145 * (x * x)))

        return x * share, (to_x,)

    def value(x: Array, y: Array, share: Array) -> None:
        np.multiply(x, x, out=y)
        y *= 2 * c * 0.044715
        y += 2 * c
        y *= x
        write_logistic(y, share)
        np.multiply(x, share, out=y)

    def write_gradient(x: Array, g: Array, share: Array, d: Array) -> None:
        np.multiply(x, x, out=d)
        d *= 2 * c * 0.134145
        d += 2 * c
        d *= 1 - share
        d *= share
        d *= x
        d += share
        d *= g

    x = floating(x)
    y, share = in_blocks(value, x, outputs=2)
    return y, (lambda g: in_blocks(write_gradient, x, g, share)[0],)


@elementwise
def silu(x: Array) -> OpResult:
    """x sigmoid(x), which is also called swish (Hendrycks and Gimpel 2016)."""
    x = floating(x)
    if array_module(x) is not np:
        return kernels.activation("silu", x)

    def value(x: Array, y: Array, share: Array) -> None:
        write_logistic(x, share)
        np.multiply(x, share, out=y)

    def slope(x: Array, g: Array, share: Array, d: Array) -> None:
        """share (1 + x (1 - share))"""
        np.subtract(1, share, out=d)
        d *= x
        d += 1
        d *= share
        d *= g

    y, share = in_blocks(value, x, outputs=2)
    return y, (lambda g: in_blocks(slope, x, g, share)[0],)


@elementwise
def softplus(x: Array, *, beta: float = 1.0, threshold: float = 20.0) -> OpResult:
    """log(1 + e ** (beta x)) / beta, and x itself where beta x > ``threshold``, as in PyTorch.

    Raises ValueError unless beta is positive.
    """
    if not beta > 0:
        raise ValueError(f"beta must be positive, got {beta}")
    x = floating(x)
    if array_module(x) is not np:
        return kernels.activation("softplus", x, beta, threshold)

    visible = math.exp(-threshold) > np.finfo(x.dtype).eps / 4  # the digits show what lies above

    def value(x: Array, y: Array) -> None:
        write_log_of_1_plus_exp(x * -beta, y)
        if beta != 1:
            y /= beta
        if visible and (linear := np.asarray(x * beta > threshold)).any():
            np.copyto(y, x, where=linear)

    def slope(x: Array, g: Array, d: Array) -> None:
        write_logistic(x * beta, d)
        if visible:
            np.maximum(d, x * beta > threshold, out=d)
        d *= g

    return in_blocks(value, x)[0], (lambda g: in_blocks(slope, x, g)[0],)


@elementwise
def log_sigmoid(x: Array) -> OpResult:
    """log(sigmoid(x)), with all its digits on both sides."""
    x = floating(x)
    if array_module(x) is not np:
        return kernels.activation("log_sigmoid", x)

    def value(x: Array, y: Array) -> None:
        write_log_of_1_plus_exp(x, y)
        np.negative(y, out=y)

    def slope(x: Array, g: Array, d: Array) -> None:
        write_logistic(-x, d)
        d *= g

    return in_blocks(value, x)[0], (lambda g: in_blocks(slope, x, g)[0],)


@elementwise
def elu(x: Array, *, alpha: float = 1.0) -> OpResult:
    """x where positive, else alpha (e ** x - 1) (Clevert, Unterthiner and Hochreiter 2016)."""
    x = floating(x)
    if array_module(x) is not np:
        return kernels.activation("elu", x, alpha)

    def value(x: Array, y: Array) -> None:
        np.minimum(x, np.zeros_like(x), out=y)
        np.expm1(y, out=y)
        if alpha != 1:
            y *= alpha
        y += np.maximum(x, np.zeros_like(x))

    def slope(x: Array, g: Array, d: Array) -> None:
        np.minimum(x, np.zeros_like(x), out=d)
        np.exp(d, out=d)
        if alpha != 1:
            d *= np.asarray(x > 0) * (1 - alpha) + alpha  # 1 above 0, else alpha
        d *= g

    return in_blocks(value, x)[0], (lambda g: in_blocks(slope, x, g)[0],)


@elementwise
def hardswish(x: Array) -> OpResult:
    """x times a ramp from 0 at -3 to 1 at 3 (Howard et al. 2019); at -3 its slope is 0, at 3 it is 1."""
    x = floating(x)
    if array_module(x) is not np:
        return kernels.activation("hardswish", x)

    def value(x: Array, y: Array) -> None:
        np.add(x, 3, out=y)
        np.clip(y, 0, 6, out=y)
        y *= x
        y /= 6

    def slope(x: Array, g: Array, d: Array) -> None:
        """x / 3 + 1 / 2 between -3 and 3; at their ends this is 1 / 2 too far."""
        np.clip(x, -3, 3, out=d)
        above, below = np.asarray(d >= 3), np.asarray(d <= -3)
        d *= 1 / 3
        d += 0.5
        d -= 0.5 * above.astype(d.dtype)
        d += 0.5 * below.astype(d.dtype)
        d *= g

    return in_blocks(value, x)[0], (lambda g: in_blocks(slope, x, g)[0],)


def write_logistic(x: Array, out: Array) -> None:
    """1 / (1 + e ** -x), where the exponential may be infinite."""
    np.negative(x, out=out)
    with np.errstate(over="ignore"):
        np.exp(out, out=out)
    out += 1
    np.divide(1, out, out=out)


def write_log_of_1_plus_exp(x: Array, out: Array) -> None:
    """log(1 + e ** -x) = max(-x, 0) + log(1 + e ** -|x|)."""
    np.abs(x, out=out)
    np.negative(out, out=out)
    np.exp(out, out=out)
    np.log1p(out, out=out)
    out -= np.minimum(x, np.zeros_like(x))
