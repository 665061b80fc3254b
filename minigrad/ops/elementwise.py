"""Ops that treat every element alone; shapes broadcast as in NumPy.

Lecture section: back-propagation. Lesson: 02_backpropagation.
"""

from __future__ import annotations

import math

from ..device import Array, array_module
from ..op import Pulled, op


def identity(g: Array) -> Array:
    return g


@op
def add(x: Array, y: Array) -> Pulled:
    """x + y."""
    return x + y, (identity, identity)


@op
def subtract(x: Array, y: Array) -> Pulled:
    """x - y."""
    return x - y, (identity, lambda g: -g)


@op
def multiply(x: Array, y: Array) -> Pulled:
    """x * y."""
    return x * y, (lambda g: g * y, lambda g: g * x)


@op
def divide(x: Array, y: Array) -> Pulled:
    """x / y."""
    return x / y, (lambda g: g / y, lambda g: -g * x / (y * y))


@op
def power(x: Array, y: Array) -> Pulled:
    """x ** y. The gradient of an exponent is x ** y * log(x), taken as 0 where x is 0."""
    value = x**y

    def to_base(g: Array) -> Array:
        xp = array_module(g)
        # Where y is 0 the value is the constant 1, also at x = 0, where x ** -1 is infinite.
        slope = xp.where(xp.equal(y, 0), 0, y * xp.power(xp.where(xp.equal(y, 0), 1, x), xp.subtract(y, 1)))
        return (g * slope).astype(g.dtype, copy=False)

    def to_exponent(g: Array) -> Array:
        xp = array_module(g)
        positive = xp.greater(x, 0)
        return g * value * xp.where(positive, xp.log(xp.where(positive, x, 1)), 0).astype(g.dtype, copy=False)

    return value, (to_base, to_exponent)


@op
def negative(x: Array) -> Pulled:
    """-x."""
    return -x, (lambda g: -g,)


@op
def abs(x: Array) -> Pulled:
    """|x|, with gradient 0 at 0."""
    xp = array_module(x)
    return xp.abs(x), (lambda g: g * xp.sign(x),)


@op
def exp(x: Array) -> Pulled:
    """e ** x."""
    y = array_module(x).exp(x)
    return y, (lambda g: g * y,)


@op
def log(x: Array) -> Pulled:
    """The natural logarithm."""
    return array_module(x).log(x), (lambda g: g / x,)


@op
def sqrt(x: Array) -> Pulled:
    """The square root."""
    y = array_module(x).sqrt(x)
    return y, (lambda g: g / (2 * y),)


@op
def tanh(x: Array) -> Pulled:
    """The hyperbolic tangent."""
    y = array_module(x).tanh(x)
    return y, (lambda g: g * (1 - y * y),)


@op
def sigmoid(x: Array) -> Pulled:
    """1 / (1 + e ** -x), written with tanh so that no exponential overflows."""
    y = logistic(x)
    return y, (lambda g: g * (y * (1 - y)),)


@op
def relu(x: Array) -> Pulled:
    """max(x, 0), with gradient 0 at 0."""
    xp = array_module(x)
    y = xp.maximum(x, xp.zeros_like(outermost_slice(x)))
    return y, (lambda g: g * (y > 0),)


@op
def leaky_relu(x: Array, *, slope: float = 0.01) -> Pulled:
    """x where positive, else ``slope`` * x."""
    xp = array_module(x)
    factor = xp.where(x > 0, 1, slope).astype(x.dtype)
    return x * factor, (lambda g: g * factor,)


@op
def gelu(x: Array) -> Pulled:
    """x times the normal distribution function, in its tanh form (Hendrycks and Gimpel 2016)."""
    xp = array_module(x)
    c = math.sqrt(2 / math.pi)
    t = xp.tanh(c * (x + 0.044715 * (x * x * x)))

    def to_x(g: Array) -> Array:
        return g * (0.5 * (1 + t) + 0.5 * c * x * (1 - t * t) * (1 + 0.134145 * (x * x)))

    return 0.5 * x * (1 + t), (to_x,)


@op
def maximum(x: Array, y: Array) -> Pulled:
    """The larger of x and y; where they are equal each gets half of the gradient."""
    xp = _module_of(x, y)
    return xp.maximum(x, y), (lambda g: g * _share(xp, x, y), lambda g: g * _share(xp, y, x))


@op
def minimum(x: Array, y: Array) -> Pulled:
    """The smaller of x and y; where they are equal each gets half of the gradient."""
    xp = _module_of(x, y)
    return xp.minimum(x, y), (lambda g: g * _share(xp, y, x), lambda g: g * _share(xp, x, y))


@op
def where(condition: Array, x: Array, y: Array) -> Pulled:
    """x where ``condition`` (boolean) holds, else y."""
    xp = _module_of(condition, x)
    return xp.where(condition, x, y), (
        None,
        lambda g: g * condition,
        lambda g: g * xp.logical_not(condition),
    )


@op
def clip(x: Array, *, low: float | None = None, high: float | None = None) -> Pulled:
    """x, held between ``low`` and ``high``; no gradient outside."""
    if low is None and high is None:
        raise ValueError("clip needs a bound; pass low=, high= or both")
    xp = array_module(x)
    y = xp.clip(x, low, high)
    return y, (lambda g: g * (x == y),)


def outermost_slice(x: Array) -> Array:
    """One slice of x along its outermost axis in memory; it broadcasts against x.

    NumPy takes an array of zeros faster than the number 0, on some CPUs three times, and a small one fastest.
    """
    if x.ndim < 2:
        return x
    return x[:1] if x.strides[0] >= x.strides[-1] else x[..., :1]


def logistic(x: Array) -> Array:
    """1 / (1 + e ** -x) of an array, in its dtype."""
    return 0.5 * array_module(x).tanh(0.5 * x) + 0.5


def _module_of(x: Array, y: Array):
    return array_module(x if hasattr(x, "dtype") else y)


def _share(xp, winner: Array, loser: Array) -> Array:
    dtype = (winner if hasattr(winner, "dtype") else loser).dtype
    return (0.5 * xp.add(xp.greater(winner, loser), xp.greater_equal(winner, loser), dtype=dtype)).astype(
        dtype
    )
