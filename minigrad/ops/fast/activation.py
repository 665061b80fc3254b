"""Activation functions in one pass each way: loops on the host, kernels on a GPU.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``fast/__init__.py``.
"""

from __future__ import annotations

import math

from ... import loops
from ...device import Array, on_gpu
from ...dtypes import floating
from ...faster import form_of
from ...pullback import OpResult
from ..activation import elu, exact_gelu, gelu, hardswish, log_sigmoid, silu, softplus
from . import activation_kernels, activation_loops


def in_one_pass(name: str, x: Array, *settings: float) -> OpResult:
    """The op called ``name`` as a kernel or as a loop; NotImplemented where loops do not take x."""
    if on_gpu(x):
        return activation_kernels.activation(name, floating(x), *settings)
    return activation_loops.activation(name, x, *settings) if loops.can_take(x) else NotImplemented


@form_of(exact_gelu)
def exact_gelu_in_one_pass(x: Array) -> OpResult:
    return in_one_pass("gelu", x)


@form_of(gelu)
def gelu_in_one_pass(x: Array, *, approximate: str = "none") -> OpResult:
    if approximate != "tanh" or not loops.can_take(x):
        return NotImplemented
    c = 2 * math.sqrt(2 / math.pi)
    return activation_loops.activation("gelu_by_tanh", x, c, c * 0.044715)


@form_of(silu)
def silu_in_one_pass(x: Array) -> OpResult:
    return in_one_pass("silu", x)


@form_of(softplus)
def softplus_in_one_pass(x: Array, *, beta: float = 1.0, threshold: float = 20.0) -> OpResult:
    return in_one_pass("softplus", x, beta, threshold) if beta > 0 else NotImplemented


@form_of(log_sigmoid)
def log_sigmoid_in_one_pass(x: Array) -> OpResult:
    """On the host -softplus(-x): softplus with beta = -1."""
    return in_one_pass("log_sigmoid", x) if on_gpu(x) else in_one_pass("softplus", x, -1.0, math.inf)


@form_of(elu)
def elu_in_one_pass(x: Array, *, alpha: float = 1.0) -> OpResult:
    return in_one_pass("elu", x, alpha)


@form_of(hardswish)
def hardswish_in_one_pass(x: Array) -> OpResult:
    return in_one_pass("hardswish", x)
