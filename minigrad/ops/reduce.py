"""Ops that reduce axes.

Lecture section: back-propagation. Lesson: 02_backpropagation.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable

import numpy as np

from ..device import Array, array_module
from ..op import OpResult, op
from ..sums import axis_sums
from ..tensor import Axis
from .axes import axes_of
from .elementwise import floating, masked
from .half import half_in_single
from .scan import products_before, scan


@op
def sum(x: Array, *, axis: Axis = None, keepdims: bool = False) -> OpResult:
    """The sum over ``axis`` (all axes when None)."""
    axes = axes_of(axis, x.ndim)
    y = axis_sums(x, axes)
    return y.reshape(keepdims_shape(x.shape, axes)) if keepdims else y, (spreader(x, axes),)


@op
def mean(x: Array, *, axis: Axis = None, keepdims: bool = False) -> OpResult:
    """The mean over ``axis`` (all axes when None)."""
    axes = axes_of(axis, x.ndim)
    spread, n, y = spreader(x, axes), builtins.max(count(x, axes), 1), average(x, axes)
    return y.reshape(keepdims_shape(x.shape, axes)) if keepdims else y, (lambda g: spread(g / n),)


def average(x: Array, axes: tuple[int, ...]) -> Array:
    """The mean over ``axes``."""
    if array_module(x) is not np or not x.size or x.dtype.char not in "fd":
        return x.mean(axis=axes)  # float16 is averaged in float32
    return axis_sums(x, axes) / x.dtype.type(count(x, axes))


@op
def max(x: Array, *, axis: Axis = None, keepdims: bool = False) -> OpResult:
    """The largest element, NaN where there is one; equal ones share the gradient evenly."""
    axes = axes_of(axis, x.ndim)
    y = x.max(axis=axes, keepdims=keepdims)
    return y, (share_of_extremum(x, y, axes),)


@op
def min(x: Array, *, axis: Axis = None, keepdims: bool = False) -> OpResult:
    """The smallest element, NaN where there is one; equal ones share the gradient evenly."""
    axes = axes_of(axis, x.ndim)
    y = x.min(axis=axes, keepdims=keepdims)
    return y, (share_of_extremum(x, y, axes),)


@op
def prod(x: Array, *, axis: Axis = None, keepdims: bool = False) -> OpResult:
    """The product over ``axis`` (all axes when None), 1 of no elements; each has the others as its slope."""
    axes = axes_of(axis, x.ndim)
    spread, y = spreader(x, axes), x.prod(axis=axes, keepdims=keepdims)

    def to_x(g: Array) -> Array:
        if array_module(g) is np and is_divisible(y):
            return spread(g * y) / x
        return spread(g) * products_of_others(x, axes)

    return y, (to_x,)


def is_divisible(y: Array) -> bool:
    """Whether products have all their digits, so that one factor less is a quotient."""
    size, info = np.abs(y), np.finfo(y.dtype)
    return bool(((size >= info.tiny) & (size <= info.max)).all())


def products_of_others(x: Array, axes: tuple[int, ...]) -> Array:
    """For each element the product of all others along ``axes``: of those before it and those behind it."""
    xp, n = array_module(x), x.ndim - len(axes)
    order = [*(i for i in range(x.ndim) if i not in axes), *axes]
    moved = x.transpose(order)
    rows = moved.reshape(*moved.shape[:n], count(x, axes))
    before, behind = (products_before(scan(xp.cumprod, a, n), n) for a in (rows, rows[..., ::-1]))
    others = before * behind[..., ::-1]
    return others.reshape(moved.shape).transpose([order.index(i) for i in range(x.ndim)])


@op
@half_in_single
def var(x: Array, *, axis: Axis = None, keepdims: bool = False, ddof: float = 0) -> OpResult:
    """The variance over ``axis``: the sum of squared deviations over the count minus ``ddof``, as in NumPy.

    PyTorch's default is ``ddof=1``. Where ``ddof`` leaves nothing of the count, it is NaN or infinite.
    """
    axes = axes_of(axis, x.ndim)
    value, centred, n = variance(x, axes, keepdims, ddof)
    spread, factor = spreader(x, axes), 2 / n if n else math.inf
    return value, (lambda g: spread(g * factor) * centred,)


@op
@half_in_single
def std(x: Array, *, axis: Axis = None, keepdims: bool = False, ddof: float = 0) -> OpResult:
    """The standard deviation, the square root of ``var``; where it is 0, so is its gradient."""
    axes = axes_of(axis, x.ndim)
    value, centred, n = variance(x, axes, keepdims, ddof)
    xp, spread = array_module(x), spreader(x, axes)
    y = xp.sqrt(value)
    return y, (lambda g: spread(g / (xp.where(y == 0, np.inf, y) * n)) * centred,)


def variance(x: Array, axes: tuple[int, ...], keepdims: bool, ddof: float) -> tuple[Array, Array, float]:
    """The variance, the deviations from the mean, and the number that the sum of their squares is over."""
    reduced = keepdims_shape(x.shape, axes)
    centred = floating(x) - average(x, axes).reshape(reduced)
    centred -= average(centred, axes).reshape(reduced)  # what rounding left of a mean far from 0
    n, squares = builtins.max(count(x, axes) - ddof, 0), axis_sums(centred * centred, axes)
    with np.errstate(divide="ignore", invalid="ignore"):  # over 0
        value = squares / centred.dtype.type(n)
        return value.reshape(reduced) if keepdims else value, centred, n


def spreader(x: Array, axes: tuple[int, ...]) -> Callable[[Array], Array]:
    """g of the reduced shape -> a view of it in ``x``'s shape."""
    shape, dtype, reduced = x.shape, x.dtype, keepdims_shape(x.shape, axes)

    def spread(g: Array) -> Array:
        xp = array_module(g)
        return xp.broadcast_to(xp.asarray(g, dtype=dtype).reshape(reduced), shape)

    return spread


def share_of_extremum(x: Array, y: Array, axes: tuple[int, ...]) -> Callable[[Array], Array]:
    spread, reduced = spreader(x, axes), keepdims_shape(x.shape, axes)

    def to_x(g: Array) -> Array:
        xp = array_module(x)
        extremum = y.reshape(reduced)
        hit = x == extremum
        if xp is not np or xp.isnan(extremum).any():  # the host does not wait for a GPU's answer
            hit |= xp.isnan(x)
        return masked(spread(g / hit.sum(axis=axes).reshape(g.shape).astype(x.dtype)), hit)

    return to_x


def keepdims_shape(shape: tuple[int, ...], axes: tuple[int, ...]) -> tuple[int, ...]:
    """``shape`` with the reduced axes kept as 1."""
    return tuple(1 if i in axes else n for i, n in enumerate(shape))


def count(x: Array, axes: tuple[int, ...]) -> int:
    """How many elements of ``x`` go into each element of the result."""
    return math.prod(x.shape[a] for a in axes)
