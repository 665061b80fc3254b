"""Ops that treat every element alone; shapes broadcast as in NumPy.

Lecture section: back-propagation. Lesson: 02_backpropagation.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable
from functools import cache
from typing import Any, ParamSpec

import numpy as np

from .. import loops
from ..device import Array, array_module, on_gpu
from ..op import OpResult, op
from ..tensor import Tensor
from . import elementwise_kernels as kernels
from .elementwise_loops import (
    of_elements,
    write_absolute_gradient,
    write_leaky,
    write_leaky_gradient,
    write_logistic,
    write_logistic_gradient,
)
from .memory_order import in_memory_order

P = ParamSpec("P")
LINE = 1 << 14  # elements that NumPy takes together without its buffers, which have half as many


def elementwise(function: Callable[P, OpResult]) -> Callable[P, Tensor]:
    """``op`` of a function of each element; on a GPU too, images stay channels-last."""
    return op(function, in_memory_order(function))


def identity(g: Array) -> Array:
    return g


@elementwise
def astype(x: Array, *, dtype: Any) -> OpResult:
    """x as numbers of another ``dtype``; what becomes integers or booleans has no gradient."""
    y = x.astype(dtype)
    return y, ((lambda g: g.astype(x.dtype, copy=False)) if y.dtype.kind == "f" else None,)


@elementwise
def add(x: Array, y: Array) -> OpResult:
    """x + y."""
    return x + y, (identity, identity)


@elementwise
def subtract(x: Array, y: Array) -> OpResult:
    """x - y."""
    return x - y, (identity, lambda g: -g)


@elementwise
def multiply(x: Array, y: Array) -> OpResult:
    """x * y."""
    return x * y, (lambda g: g * y, lambda g: g * x)


@elementwise
def divide(x: Array, y: Array) -> OpResult:
    """x / y."""
    return x / y, (lambda g: g / y, lambda g: -g * (x / y / y))  # y * y may overflow


@elementwise
def power(x: Array, y: Array) -> OpResult:
    """x ** y. The gradient of an exponent is x ** y * log(x), taken as 0 where x = 0 and y >= 0."""
    if on_gpu(x) and isinstance(y, int | float) and y < 0:
        x = floating(x)
    constant_exponent = isinstance(x, np.ndarray) and isinstance(y, int | float)
    value = constant_power(x, y) if constant_exponent else x**y

    def to_base(g: Array) -> Array:
        xp = array_module(g)
        if constant_exponent:
            return g * (y * constant_power(x, y - 1)) if y else g * 0
        # Where y is 0 the value is the constant 1, also at x = 0, where x ** -1 is infinite.
        slope = xp.where(xp.equal(y, 0), 0, y * xp.power(xp.where(xp.equal(y, 0), 1, x), xp.subtract(y, 1)))
        return (g * slope).astype(g.dtype, copy=False)

    def to_exponent(g: Array) -> Array:
        xp = array_module(g)
        constant = xp.logical_and(xp.equal(x, 0), xp.greater_equal(y, 0))
        return g * value * xp.log(xp.where(constant, 1, x)).astype(g.dtype, copy=False)

    return value, (to_base, to_exponent)


def constant_power(x: Array, y: float) -> Array:
    """x ** y; small whole powers as products: NumPy's power of a negative number takes 70 times as long.

    The factors are x, or 1 / x: then what goes over or under on the way does so in the result too.
    """
    if x.dtype.kind != "f":
        return (x if y >= 0 else x.astype(float)) ** y
    if y == -0.5:
        return 1 / array_module(x).sqrt(x)
    if y != int(y) or not 2 <= builtins.abs(y) <= 8:
        return x**y
    factor = x if y > 0 else 1 / x
    value = factor * factor
    for _ in range(2, builtins.abs(int(y))):
        value *= factor
    return value


@elementwise
def negative(x: Array) -> OpResult:
    """-x."""
    return -x, (lambda g: -g,)


@elementwise
def abs(x: Array) -> OpResult:
    """|x|, with gradient 0 at 0 and at NaN."""
    xp = array_module(x)
    if loops.can_take(x):
        return np.abs(x), (lambda g: of_elements(write_absolute_gradient, x, g),)

    def to_x(g: Array) -> Array:
        above, below = xp.asarray(x > 0), xp.asarray(x < 0)
        return g * (above.view(xp.int8) - below.view(xp.int8))

    return xp.abs(x), (to_x,)


@elementwise
def exp(x: Array) -> OpResult:
    """e ** x."""
    y = array_module(x).exp(floating(x))
    return y, (lambda g: g * y,)


@elementwise
def log(x: Array) -> OpResult:
    """The natural logarithm."""
    return array_module(x).log(floating(x)), (lambda g: g / x,)


@elementwise
def sqrt(x: Array) -> OpResult:
    """The square root."""
    y = array_module(x).sqrt(floating(x))
    return y, (lambda g: g / (2 * y),)


@elementwise
def tanh(x: Array) -> OpResult:
    """The hyperbolic tangent."""
    y = array_module(x).tanh(floating(x))
    return y, (lambda g: g * (1 - y * y),)


@elementwise
def sin(x: Array) -> OpResult:
    """The sine of an angle in radians."""
    xp, x = array_module(x), floating(x)
    return xp.sin(x), (lambda g: g * xp.cos(x),)


@elementwise
def cos(x: Array) -> OpResult:
    """The cosine of an angle in radians."""
    xp, x = array_module(x), floating(x)
    return xp.cos(x), (lambda g: g * -xp.sin(x),)


@elementwise
def sigmoid(x: Array) -> OpResult:
    """1 / (1 + e ** -x)."""
    if loops.can_take(x):
        value = of_elements(write_logistic, x)
        return value, (lambda g: of_elements(write_logistic_gradient, value, g),)
    y = logistic(x)

    def to_x(g: Array) -> Array:
        if kernels.fits(g, y):
            return kernels.logistic_gradient(g, y)
        d = 1 - y
        d *= y
        d *= g
        return d

    return y, (to_x,)


@elementwise
def relu(x: Array) -> OpResult:
    """max(x, 0), with gradient 0 at 0; NaN passes both ways."""
    y = positive_part(x)
    return y, (lambda g: where_positive(g, y),)


@elementwise
def leaky_relu(x: Array, *, slope: float = 0.01) -> OpResult:
    """x where positive, else ``slope`` * x."""
    if loops.can_take(x):
        y = of_elements(write_leaky, x, settings=[slope])
        same_sign = y if slope >= 0 else x  # the next op is likely to need y, too
        return y, (lambda g: of_elements(write_leaky_gradient, same_sign, g, settings=[slope]),)
    xp = array_module(x)
    factor = xp.where(x > 0, 1, slope).astype(x.dtype if x.dtype.kind == "f" else float)
    return x * factor, (lambda g: g * factor,)


@elementwise
def maximum(x: Array, y: Array) -> OpResult:
    """The larger of x and y; where they are equal each gets half of the gradient, beside NaN each all."""
    xp = _module_of(x, y)
    return xp.maximum(x, y), (lambda g: winners(g, x, y), lambda g: winners(g, y, x))


@elementwise
def minimum(x: Array, y: Array) -> OpResult:
    """The smaller of x and y; where they are equal each gets half of the gradient, beside NaN each all."""
    xp = _module_of(x, y)
    return xp.minimum(x, y), (lambda g: winners(g, y, x), lambda g: winners(g, x, y))


@elementwise
def where(condition: Array, x: Array, y: Array) -> OpResult:
    """x where ``condition`` holds (is not 0), else y; other elements, even NaN, get no gradient."""
    xp = _module_of(condition, x)
    condition = xp.asarray(condition, dtype=bool)
    return xp.where(condition, x, y), (
        None,
        lambda g: masked(g, condition),
        lambda g: masked(g, ~condition),
    )


@elementwise
def clip(x: Array, *, low: float | None = None, high: float | None = None) -> OpResult:
    """x, held between ``low`` and ``high``; no gradient outside, nor at NaN."""
    if low is None and high is None:
        raise ValueError("clip needs a bound; pass low=, high= or both")
    least, most = -math.inf if low is None else low, math.inf if high is None else high
    return array_module(x).clip(x, low, high), (lambda g: masked(g, (x >= least) & (x <= most)),)


def floating(x: Array, like: Any = None) -> Array:
    """x in the dtype of ``like``, where that has floats; else x, where it has integers as float64."""
    if like is not None and is_floating(like):
        return x.astype(like.dtype, copy=False) if hasattr(x, "dtype") else x
    return x.astype(float) if hasattr(x, "dtype") and x.dtype.kind != "f" else x


def alike(x: Array, y: Array) -> tuple[Array, Array]:
    """x and y as floats of one dtype: that of x, or of y where x has integers, or float64 where both have."""
    if type(x) is type(y) is np.ndarray and x.dtype.char == y.dtype.char in "fd":
        return x, y
    x = floating(x, None if is_floating(x) else y)
    return x, floating(y, x)


def in_dtype_of(weight: Array, x: Array) -> Array:
    """x in the dtype of a layer's weight: float64 samples do not widen what a float32 model computes.

    Where the weight has integers x stays as it is.
    """
    return floating(x, weight) if is_floating(weight) else x


def is_floating(x: Any) -> bool:
    """Whether x is an array of floats; a Python number is none."""
    return hasattr(x, "dtype") and x.dtype.kind == "f"


def logistic(x: Array) -> Array:
    """1 / (1 + e ** -x) of an array, in its dtype, with all its digits also where it is nearly 0."""
    if kernels.fits(x):
        return kernels.logistic(x)
    xp = array_module(x)
    y = xp.asarray(x * -1.0)
    with np.errstate(over="ignore"):  # 1 / inf is 0
        xp.exp(y, out=y)
    y += 1
    return xp.divide(1, y, out=y)


def positive_part(x: Array, out: Array | None = None) -> Array:
    """max(x, 0), also written into ``out``, an array without gaps; in float32 and float64 never -0.

    NumPy takes the maximum of lines three times as fast as that of an array and a number, and of two zeros
    it takes the second. ``clip``, which is as fast, keeps -0.
    """
    if type(x) is not np.ndarray or x.dtype.char not in "fd":
        return array_module(x).maximum(x, 0, out=out)
    y = np.empty_like(x) if out is None else out
    if y.strides != x.strides:
        y[...] = x
        x = y
    flat, values, zeros = (
        x.ravel("K"),
        y.ravel("K"),
        line_of_zeros(LINE, x.dtype),
    )  # views, in the order of memory
    whole = x.size // LINE * LINE
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


def where_positive(g: Array, y: Array, out: Array | None = None) -> Array:
    """The gradient of y, a ``positive_part``, also written into ``out``: g where y is positive or NaN.

    There the bits of y are an integer with the sign 1, by which the bits of g are multiplied: without a mask.
    """
    if kernels.fits(g, y):
        return kernels.where_positive(g, y, out)
    if type(y) is not np.ndarray or g.dtype != y.dtype or y.dtype.char not in "fd":
        return masked(g, y != 0, out)
    bits = f"u{y.itemsize}"
    d = np.empty_like(y) if out is None else out
    np.sign(y.view(bits), out=d.view(bits))
    np.multiply(d.view(bits), g.view(bits), out=d.view(bits))
    return d


def masked(g: Array, mask: Array, out: Array | None = None) -> Array:
    """g where ``mask`` holds, else 0, also where g is infinite or NaN, which times 0 is NaN.

    The bits are multiplied, as integers: as fast as g * mask, while a choice by the mask takes ten times.
    """
    xp = array_module(g)
    if g.dtype.itemsize > 8:
        d = xp.where(mask, g, 0)
        if out is not None:
            out[...] = d
        return d
    kind = f"i{g.dtype.itemsize}"
    if xp is np and mask.shape == g.shape:
        d = np.empty_like(mask, dtype=g.dtype) if out is None else out
        bits = d.view(kind)
        bits[...] = mask
        bits *= g.view(kind)
        return d
    d = out
    if d is None:
        d = np.empty_like(g) if xp is np else xp.empty(g.shape, g.dtype)  # see ``in_memory_order``
    xp.multiply(g.view(kind), mask, out=d.view(kind))
    return d


def winners(g: Array, x: Array, y: Array) -> Array:
    """g where x > y or one of them is NaN, half of it where they are equal."""
    d, ties = masked(g, ~(x < y)), x == y
    if array_module(g) is not np or ties.any():  # the host does not wait for a GPU's answer
        d *= 1 - 0.5 * ties.astype(g.dtype)
    return d


def _module_of(x: Array, y: Array):
    return array_module(x if hasattr(x, "dtype") else y)
