"""A bias and an activation as one loop each way; ``ops/linear`` has the readable form.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``fast/linear.py``.
"""

from __future__ import annotations

import numpy as np

from ... import loops
from ...device import Array
from ...pullback import OpResult
from ...tape import once
from ..linear import as_rows
from .normal_distribution import normal


def activated(y: np.ndarray, bias: np.ndarray, activation: str) -> OpResult:
    """The activation of y + bias for y (..., n) in C order, or (N, n) in Fortran's; y then holds the sum.

    The loop that writes the gradient of y adds it up as well, for the bias.
    """
    is_turned = not y.flags.c_contiguous
    in_memory = np.transpose if is_turned else as_rows
    before, value, write_gradient = in_memory(y), y, write_biased_relu_gradient
    if activation == "gelu":
        value, write_gradient = np.empty_like(y), write_biased_gelu_gradient
        write_biased_gelu(bias, is_turned, before, in_memory(value))
    else:
        write_biased_relu(bias, is_turned, before)

    def gradients(g: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        d, sums = np.empty_like(y), np.zeros(len(bias))
        write_gradient(before, np.ascontiguousarray(in_memory(g), y.dtype), is_turned, in_memory(d), sums)
        return d, sums

    both = once(gradients)
    return value, (lambda g: both(g)[0], lambda g: both(g)[1].astype(y.dtype))


@loops.compiled
def write_biased_relu(bias: Array, is_turned: bool, y: Array) -> None:
    """The positive part of y + bias in the place of y; NaN stays. A bias belongs to a column, or to a row."""
    zero = y.dtype.type(0)
    for i in range(len(y)):
        if is_turned:
            shift = bias[i]
            for j in range(y.shape[1]):
                z = y[i, j] + shift
                y[i, j] = zero if z <= zero else z
        else:
            for j in range(y.shape[1]):
                z = y[i, j] + bias[j]
                y[i, j] = zero if z <= zero else z


@loops.compiled
def write_biased_relu_gradient(y: Array, g: Array, is_turned: bool, d: Array, sums: Array) -> None:
    """The gradient before the ReLU, and its sums; those of a column are added up from sums of 32 rows."""
    zero, chains = y.dtype.type(0), np.zeros(y.shape[1], y.dtype)
    for i in range(len(y)):
        if is_turned:
            total = 0.0
            for j in range(y.shape[1]):
                before = zero if y[i, j] == zero else g[i, j]
                d[i, j] = before
                total += before
            sums[i] = total
        else:
            for j in range(y.shape[1]):
                before = zero if y[i, j] == zero else g[i, j]
                d[i, j] = before
                chains[j] += before
            if i % 32 == 31 or i == len(y) - 1:
                for j in range(y.shape[1]):
                    sums[j] += chains[j]
                    chains[j] = zero


@loops.compiled
def write_biased_gelu(bias: Array, is_turned: bool, z: Array, y: Array) -> None:
    """The sum z + bias in the place of z, and its GELU in y."""
    for i in range(len(z)):
        if is_turned:
            shift = bias[i]
            for j in range(z.shape[1]):
                x = z[i, j] + shift
                z[i, j] = x
                y[i, j] = x * normal(x)[0]
        else:
            for j in range(z.shape[1]):
                x = z[i, j] + bias[j]
                z[i, j] = x
                y[i, j] = x * normal(x)[0]


@loops.compiled
def write_biased_gelu_gradient(z: Array, g: Array, is_turned: bool, d: Array, sums: Array) -> None:
    """The gradient before the GELU, and its sums, as ``write_biased_relu_gradient`` adds them."""
    zero, chains = z.dtype.type(0), np.zeros(z.shape[1], z.dtype)
    for i in range(len(z)):
        if is_turned:
            total = 0.0
            for j in range(z.shape[1]):
                share, density = normal(z[i, j])
                before = g[i, j] * (share + z[i, j] * density)
                d[i, j] = before
                total += before
            sums[i] = total
        else:
            for j in range(z.shape[1]):
                share, density = normal(z[i, j])
                before = g[i, j] * (share + z[i, j] * density)
                d[i, j] = before
                chains[j] += before
            if i % 32 == 31 or i == len(z) - 1:
                for j in range(z.shape[1]):
                    sums[j] += chains[j]
                    chains[j] = zero
