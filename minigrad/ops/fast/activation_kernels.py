"""Activation functions on a GPU as one kernel each way; ``ops/activation`` has the readable forms.

Lecture section: GPU against CPU. Lesson: 02_backpropagation, by ``fast/activation.py``.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ...device import Array, array_module, elementwise_kernel
from ...pullback import OpResult

CONSTANTS = {"zero": 0, "one": 1, "half": 0.5, "root": math.sqrt(0.5), "peak": 1 / math.sqrt(2 * math.pi)}


class Activation(NamedTuple):
    """The value and the slope at x, in C++, and the names of the settings in them."""

    value: str
    slope: str
    settings: tuple[str, ...] = ()


ACTIVATIONS = {
    "gelu": Activation(
        "x * (half * erfc(-x * root))", "half * erfc(-x * root) + x * (peak * exp(-half * x * x))"
    ),
    "silu": Activation("x / (1 + exp(-x))", "(1 + x / (1 + exp(x))) / (1 + exp(-x))"),
    "softplus": Activation(
        "choose(b * x > most, x, choose(x > 0, x, zero) + log1p(exp(choose(x > 0, -b * x, b * x))) / b)",
        "choose(b * x > most, one, 1 / (1 + exp(-b * x)))",
        ("b", "most"),
    ),
    "log_sigmoid": Activation(
        "choose(x > 0, zero, x) - log1p(exp(choose(x > 0, -x, x)))", "1 / (1 + exp(x))"
    ),
    "elu": Activation("choose(x > 0, x, alpha * expm1(x))", "choose(x > 0, one, alpha * exp(x))", ("alpha",)),
    "hardswish": Activation(
        "x * choose(x <= -3, zero, choose(x >= 3, one, (x + 3) / 6))",
        "choose(x <= -3, zero, choose(x >= 3, one, x / 3 + half))",
    ),
}


def activation(name: str, x: Array, *settings: float) -> OpResult:
    """The op called ``name`` of an array on a GPU."""
    xp, form, dtype = array_module(x), ACTIVATIONS[name], x.dtype
    numbers = CONSTANTS | dict(zip(form.settings, settings, strict=True))
    inputs = ", ".join(f"T {number}" for number in numbers)
    x = x.astype(np.float32) if dtype == np.float16 else x
    y = xp.empty(x.shape, x.dtype)
    elementwise_kernel(f"T x, {inputs}", "T y", f"y = {form.value}", name)(x, *numbers.values(), y)

    def to_x(g: Array) -> Array:
        d = xp.empty(x.shape, x.dtype)
        kernel = elementwise_kernel(
            f"T x, T g, {inputs}", "T d", f"d = g * ({form.slope})", f"{name}_gradient"
        )
        kernel(x, g.astype(x.dtype, copy=False), *numbers.values(), d)
        return d.astype(dtype, copy=False)

    return y.astype(dtype, copy=False), (to_x,)
