"""Ops that treat every element alone; shapes broadcast as in NumPy.

Lecture section: back-propagation. Lesson: 02_backpropagation.

>>> from minigrad import ops
>>> ops.maximum([1.0, 5.0], 2.0).data.tolist()
[2.0, 5.0]
"""

from __future__ import annotations

import math
from collections.abc import Callable
from operator import index
from typing import TYPE_CHECKING, Any, ParamSpec

import numpy as np

from ..half import half_by_value, half_in_single
from ..memory_order import in_memory_order
from ..op import Array, OpResult, array_module, as_tensor, faster, floating, op, settings_by_name
from ..tensor_base import TensorBase, as_operand
from .selection import masked, positive_part, where_positive, winners

if TYPE_CHECKING:
    from ..tensor import Tensor

P = ParamSpec("P")


def elementwise(function: Callable[P, OpResult]) -> Callable[P, Tensor]:
    """``op`` of a function of each element; on a GPU too, images stay channels-last."""
    return op(function, in_memory_order(function))


@elementwise
def astype(x: Array, *, dtype: Any) -> OpResult:
    """x as numbers of another ``dtype``; what becomes integers or booleans has no gradient."""
    y = x.astype(dtype)
    return y, ((lambda g: g.astype(x.dtype, copy=False)) if y.dtype.kind == "f" else None,)


@elementwise
def add(x: Array, y: Array) -> OpResult:
    """x + y."""
    return x + y, (lambda g: g, lambda g: g)


@elementwise
def subtract(x: Array, y: Array) -> OpResult:
    """x - y."""
    return x - y, (lambda g: g, lambda g: -g)


@elementwise
def multiply(x: Array, y: Array) -> OpResult:
    """x * y."""
    return x * y, (lambda g: g * y, lambda g: g * x)


@elementwise
def divide(x: Array, y: Array) -> OpResult:
    """x / y."""
    return x / y, (lambda g: g / y, lambda g: -g * (x / y / y))  # y * y may overflow


@elementwise
@half_in_single
@faster
def power(x: Array, y: Array) -> OpResult:
    """x ** y. The gradient of an exponent is x ** y * log(x), taken as 0 where x = 0 and y >= 0."""
    if isinstance(y, int | float) and y < 0:
        x = floating(x)
    value = x**y

    def to_base(g: Array) -> Array:
        less = (y - 1) * (y != 0)  # where y is 0 the slope is 0, also at x = 0, where x ** -1 is infinite
        return (g * (y * x**less)).astype(g.dtype, copy=False)

    def to_exponent(g: Array) -> Array:
        xp, constant = array_module(g), (x == 0) & (y >= 0)
        return g * value * xp.log(xp.where(constant, 1, x)).astype(g.dtype, copy=False)

    return value, (to_base, to_exponent)


@elementwise
def negative(x: Array) -> OpResult:
    """-x."""
    return -x, (lambda g: -g,)


@elementwise
@faster
def abs(x: Array) -> OpResult:
    """|x|, with gradient 0 at 0 and at NaN."""
    return array_module(x).abs(x), (lambda g: masked(g, x > 0) - masked(g, x < 0),)


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
@half_by_value(lambda y, g: (1 - y * y) * g)
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
@half_by_value(lambda y, g: g * (y * (1 - y)))
@faster
def sigmoid(x: Array) -> OpResult:
    """1 / (1 + e ** -x)."""
    y = logistic(x)
    return y, (lambda g: g * (y * (1 - y)),)


@elementwise
def relu(x: Array) -> OpResult:
    """max(x, 0), with gradient 0 at 0; NaN passes both ways."""
    y = positive_part(x)
    return y, (lambda g: where_positive(g, y),)


@elementwise
@half_in_single
@faster
def leaky_relu(x: Array, *, slope: float = 0.01) -> OpResult:
    """x where positive, else ``slope`` * x."""
    xp, x = array_module(x), floating(x)
    factor = xp.where(x > 0, 1, slope).astype(x.dtype)
    return x * factor, (lambda g: g * factor,)


@elementwise
def maximum(x: Array, y: Array) -> OpResult:
    """The larger of x and y; each gets half of the gradient where they are equal, all where one is NaN."""
    xp = _module_of(x, y)
    return xp.maximum(x, y), (lambda g: winners(g, x, y), lambda g: winners(g, y, x))


@elementwise
def minimum(x: Array, y: Array) -> OpResult:
    """The smaller of x and y; each gets half of the gradient where they are equal, all where one is NaN."""
    xp = _module_of(x, y)
    return xp.minimum(x, y), (lambda g: winners(g, y, x), lambda g: winners(g, x, y))


@elementwise
def where(condition: Array, x: Array, y: Array) -> OpResult:
    """x where ``condition`` holds (is not 0), else y; other elements, even NaN, get no gradient."""
    xp = _module_of(condition, x)
    condition = xp.asarray(condition, dtype=bool)
    to_x, to_y = lambda g: masked(g, condition), lambda g: masked(g, ~condition)
    return xp.where(condition, x, y), (None, to_x, to_y)


@settings_by_name
def masked_fill(x: Any, mask: Any, *, value: Any) -> Tensor:
    """x, but ``value``, a number, where ``mask`` holds; the mask broadcasts to the shape of x.

    Raises ValueError where it does not.
    """
    x = as_tensor(x)
    mask = mask.data if isinstance(mask, TensorBase) else as_operand(mask, (x,))
    if not broadcasts(shape := np.shape(mask), x.shape):
        raise ValueError(f"a mask of shape {shape} does not broadcast to {x.shape}; reshape one of them")
    return where(mask, value, x)


def broadcasts(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    """Whether an array of this shape can be repeated to the ``target`` shape."""
    pairs = zip(reversed(shape), reversed(target), strict=False)
    return len(shape) <= len(target) and all(n in (1, m) for n, m in pairs)


@op
def tril(x: Array, *, k: int = 0) -> OpResult:
    """Matrices (..., n, m) with 0 above their k-th diagonal; those above the main one have k > 0."""
    mask = on_or_below(x, index(k))
    return masked(x, mask), (lambda g: masked(g, mask),)


@op
def triu(x: Array, *, k: int = 0) -> OpResult:
    """Matrices (..., n, m) with 0 below their k-th diagonal; those above the main one have k > 0."""
    mask = ~on_or_below(x, index(k) - 1)
    return masked(x, mask), (lambda g: masked(g, mask),)


def on_or_below(x: Array, k: int) -> Array:
    """Which elements of the last two axes stand on the k-th diagonal or below it."""
    if x.ndim < 2:
        raise ValueError(
            f"a triangle is one of matrices (..., n, m), got an array of shape {x.shape}; reshape it"
        )
    xp, (n, m) = array_module(x), x.shape[-2:]
    return xp.arange(n)[:, None] >= xp.arange(m) - k


@elementwise
def clip(x: Array, *, low: float | None = None, high: float | None = None) -> OpResult:
    """x, held between ``low`` and ``high``; no gradient outside, nor at NaN."""
    if low is None and high is None:
        raise ValueError("clip needs a bound; pass low=, high= or both")
    least, most = -math.inf if low is None else low, math.inf if high is None else high
    return array_module(x).clip(x, low, high), (lambda g: masked(g, (x >= least) & (x <= most)),)


@faster
def logistic(x: Array) -> Array:
    """1 / (1 + e ** -x) of an array, in its dtype, with all its digits also where it is nearly 0."""
    with np.errstate(over="ignore"):  # 1 / inf is 0
        return 1 / (1 + array_module(x).exp(-floating(x)))


def _module_of(x: Array, y: Array):
    return array_module(x if hasattr(x, "dtype") else y)
