"""Ops of each element in one pass: loops and bits on the host, kernels on a GPU.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``fast/__init__.py``.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from ... import loops
from ...device import Array, array_module
from ...faster import form_of
from ...pullback import OpResult
from ..elementwise import abs as absolute
from ..elementwise import leaky_relu, logistic, power, sigmoid
from ..selection import masked, positive_part, where_positive, winners
from . import elementwise_kernels as kernels
from .elementwise_loops import (
    of_elements,
    write_absolute_gradient,
    write_leaky,
    write_leaky_gradient,
    write_logistic,
    write_logistic_gradient,
)

LINE = 1 << 14  # elements that NumPy takes together without its buffers, which have half as many


@form_of(power)
def power_by_products(x: Array, y: Array) -> OpResult:
    """x ** y of floats on the host and a number y, which has no gradient."""
    if type(x) is not np.ndarray or x.dtype.kind != "f" or not isinstance(y, int | float):
        return NotImplemented
    return constant_power(x, y), (lambda g: g * (y * constant_power(x, y - 1)) if y else g * 0, None)


def constant_power(x: Array, y: float) -> Array:
    """x ** y; small whole powers as products: NumPy's power of a negative number takes 70 times as long.

    The factors are x, or 1 / x: then what goes over or under on the way does so in the result too.
    """
    if y == -0.5:
        return 1 / np.sqrt(x)
    if y != int(y) or not 2 <= abs(y) <= 8:
        return x**y
    factor = x if y > 0 else 1 / x
    value = factor * factor
    for _ in range(2, abs(int(y))):
        value *= factor
    return value


@form_of(absolute)
def abs_by_loops(x: Array) -> OpResult:
    if not loops.can_take(x):
        return NotImplemented
    return np.abs(x), (lambda g: of_elements(write_absolute_gradient, x, g),)


@form_of(sigmoid)
def sigmoid_in_one_pass(x: Array) -> OpResult:
    y = logistic_in_one_pass(x)
    if y is NotImplemented:
        return NotImplemented
    if type(y) is np.ndarray:
        return y, (lambda g: of_elements(write_logistic_gradient, y, g),)
    return y, (lambda g: kernels.logistic_gradient(g.astype(y.dtype, copy=False), y),)


@form_of(logistic)
def logistic_in_one_pass(x: Array) -> Array:
    if loops.can_take(x):
        return of_elements(write_logistic, x)
    return kernels.logistic(x) if kernels.can_take(x) else NotImplemented


@form_of(leaky_relu)
def leaky_relu_by_loops(x: Array, *, slope: float = 0.01) -> OpResult:
    if not loops.can_take(x):
        return NotImplemented
    y = of_elements(write_leaky, x, settings=[slope])
    same_sign = y if slope >= 0 else x  # the next op is likely to need y, too
    return y, (lambda g: of_elements(write_leaky_gradient, same_sign, g, settings=[slope]),)


@form_of(positive_part)
def positive_part_by_lines(x: Array, out: Array | None = None) -> Array:
    """NumPy takes the maximum of lines three times as fast as that of an array and a number.

    Of two zeros it takes the second. ``clip``, which is as fast, keeps -0.
    """
    if type(x) is not np.ndarray or x.dtype.char not in "fd":
        return NotImplemented
    y = np.empty_like(x) if out is None else out
    if y.strides != x.strides:
        y[...] = x
        x = y
    flat, values = x.ravel("K"), y.ravel("K")  # views, in the order of memory
    zeros, whole = line_of_zeros(LINE, x.dtype), x.size // LINE * LINE
    if whole:
        np.maximum(flat[:whole].reshape(-1, LINE), zeros, out=values[:whole].reshape(-1, LINE))
    np.maximum(flat[whole:], zeros[: x.size - whole], out=values[whole:])
    return y


@cache
def line_of_zeros(size: int, dtype: np.dtype[Any]) -> np.ndarray:
    """Zeros that nobody writes."""
    zeros = np.zeros(size, dtype)
    zeros.flags.writeable = False
    return zeros


@form_of(where_positive)
def where_positive_without_a_mask(g: Array, y: Array) -> Array:
    """Multiplies the bits of g by the sign of the bits of y as an integer, which is 1 where y is not 0."""
    if kernels.can_take(g, y):
        return kernels.where_positive(g, y)
    if type(y) is not np.ndarray or g.dtype != y.dtype or y.dtype.char not in "fd":
        return NotImplemented
    d, bits = np.empty_like(y), f"u{y.itemsize}"
    np.sign(y.view(bits), out=d.view(bits))
    np.multiply(d.view(bits), g.view(bits), out=d.view(bits))
    return d


@form_of(masked)
def masked_by_bits(g: Array, mask: Array) -> Array:
    """Multiplies the bits, as integers: as fast as g * mask, while a choice by the mask takes ten times."""
    if g.dtype.itemsize > 8:
        return NotImplemented
    xp, kind = array_module(g), f"i{g.dtype.itemsize}"
    if xp is np and mask.shape == g.shape:
        d = np.empty_like(mask, dtype=g.dtype)
        bits = d.view(kind)
        bits[...] = mask
        bits *= g.view(kind)
        return d
    d = np.empty_like(g) if xp is np else xp.empty(g.shape, g.dtype)  # see ``in_memory_order``
    xp.multiply(g.view(kind), mask, out=d.view(kind))
    return d


@form_of(winners)
def winners_and_few_ties(g: Array, x: Array, y: Array) -> Array:
    """The host looks whether any elements are equal, which is rare; for a GPU's answer it would wait."""
    if type(g) is not np.ndarray or g.dtype.itemsize > 8:
        return NotImplemented
    d, ties = masked_by_bits(g, ~(x < y)), x == y
    if ties.any():
        d *= 1 - 0.5 * ties.astype(g.dtype)
    return d
