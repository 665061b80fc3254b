"""Ops that reduce axes. Lecture section: back-propagation. Lesson: 02_backpropagation.

>>> from minigrad import ops
>>> ops.mean([[1.0, 2.0], [3.0, 6.0]], axis=0).data.tolist()
[2.0, 4.0]
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable

import numpy as np

from ..op import Array, OpResult, Pullback, array_module, faster, floating, half_in_single, op
from ..sums import axis_sums
from .axes import Axis, axes_of, keepdims_shape, spreader
from .scan import products_before, scan
from .selection import masked


@op
def sum(x: Array, *, axis: Axis = None, keepdims: bool = False) -> OpResult:
    """The sum over ``axis`` (all axes when None)."""
    axes = axes_of(axis, x.ndim)
    y = axis_sums(x, axes)
    return y.reshape(keepdims_shape(x.shape, axes)) if keepdims else y, (spreader(x, axes),)


@op
@half_in_single
def mean(x: Array, *, axis: Axis = None, keepdims: bool = False) -> OpResult:
    """The mean over ``axis`` (all axes when None)."""
    axes = axes_of(axis, x.ndim)
    spread, n, y = spreader(x, axes), builtins.max(count(x, axes), 1), average(x, axes)
    return y.reshape(keepdims_shape(x.shape, axes)) if keepdims else y, (lambda g: spread(g / n),)


def average(x: Array, axes: tuple[int, ...]) -> Array:
    """The mean over ``axes``."""
    x = floating(x)
    return axis_sums(x, axes) / x.dtype.type(count(x, axes))


@op
def max(x: Array, *, axis: Axis = None, keepdims: bool = False) -> OpResult:
    """The largest element, NaN where there is one; equal ones share the gradient evenly."""
    return extremum(x, x.max, axes_of(axis, x.ndim), keepdims)


@op
def min(x: Array, *, axis: Axis = None, keepdims: bool = False) -> OpResult:
    """The smallest element, NaN where there is one; equal ones share the gradient evenly."""
    return extremum(x, x.min, axes_of(axis, x.ndim), keepdims)


def extremum(x: Array, of_axes: Callable[..., Array], axes: tuple[int, ...], keepdims: bool) -> OpResult:
    """The largest, or smallest, element of x, as its method ``of_axes`` finds it."""
    y = of_axes(axis=axes, keepdims=keepdims)
    spread, reduced = spreader(x, axes), keepdims_shape(x.shape, axes)

    def to_x(g: Array) -> Array:
        hit = is_extremum(x, y.reshape(reduced))
        return masked(spread(g / hit.sum(axis=axes).reshape(g.shape).astype(x.dtype)), hit)

    return y, (to_x,)


@faster
def is_extremum(x: Array, extremum: Array) -> Array:
    """Where x is the extremum, which is NaN if an element is."""
    return (x == extremum) | array_module(x).isnan(x)


@op
@half_in_single
@faster
def prod(x: Array, *, axis: Axis = None, keepdims: bool = False) -> OpResult:
    """The product over ``axis`` (all axes when None), 1 of no elements; each has the others as its slope."""
    axes = axes_of(axis, x.ndim)
    spread = spreader(x, axes)
    return x.prod(axis=axes, keepdims=keepdims), (lambda g: spread(g) * products_of_others(x, axes),)


def products_of_others(x: Array, axes: tuple[int, ...]) -> Array:
    """For each element the product of all others along ``axes``: of all before it times of all after it."""
    xp, n = array_module(x), x.ndim - len(axes)
    order = [*(i for i in range(x.ndim) if i not in axes), *axes]
    moved = x.transpose(order)
    rows = moved.reshape(*moved.shape[:n], count(x, axes))
    before, after = (products_before(scan(xp.cumprod, a, n), n) for a in (rows, rows[..., ::-1]))
    others = before * after[..., ::-1]
    return others.reshape(moved.shape).transpose([order.index(i) for i in range(x.ndim)])


@op
@half_in_single
def var(x: Array, *, axis: Axis = None, keepdims: bool = False, ddof: float = 0) -> OpResult:
    """The variance over ``axis``: the sum of squared deviations over the count minus ``ddof``, as in NumPy.

    PyTorch's default is ``ddof=1``. Where ``ddof`` leaves nothing of the count, it is NaN or infinite.
    """
    return variance(x, axes_of(axis, x.ndim), keepdims, ddof)


@op
@half_in_single
def std(x: Array, *, axis: Axis = None, keepdims: bool = False, ddof: float = 0) -> OpResult:
    """The standard deviation, the square root of ``var``; where it is 0, so is its gradient."""
    value, (to_x,) = variance(x, axes_of(axis, x.ndim), keepdims, ddof)
    xp, y = array_module(x), array_module(x).sqrt(value)
    return y, (lambda g: to_x(g / xp.where(y == 0, np.inf, 2 * y)),)


def variance(x: Array, axes: tuple[int, ...], keepdims: bool, ddof: float) -> tuple[Array, tuple[Pullback]]:
    """The variance over ``axes``, and its pullback."""
    reduced = keepdims_shape(x.shape, axes)
    centred = floating(x) - average(x, axes).reshape(reduced)
    centred -= average(centred, axes).reshape(reduced)  # what rounding left of a mean far from 0
    n, squares = builtins.max(count(x, axes) - ddof, 0), axis_sums(centred * centred, axes)
    with np.errstate(divide="ignore", invalid="ignore"):  # over 0
        value = squares / centred.dtype.type(n)
    spread, factor = spreader(x, axes), 2 / n if n else math.inf
    return value.reshape(reduced) if keepdims else value, (lambda g: spread(g * factor) * centred,)


def count(x: Array, axes: tuple[int, ...]) -> int:
    """How many elements of ``x`` go into each element of the result."""
    return math.prod(x.shape[a] for a in axes)
