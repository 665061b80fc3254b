"""Ops that reduce axes, and the softmax family.

Lecture section: back-propagation. Lesson: 02_backpropagation.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable

import numpy as np

from ..device import Array, array_module
from ..op import OpResult, op
from ..sums import axis_sums, row_dots, row_sums
from ..tensor import Axis
from .axes import axes_of
from .blocks import in_rows
from .elementwise import masked


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
    spread, n = spreader(x, axes), builtins.max(count(x, axes), 1)
    own = (
        array_module(x) is not np or not x.size or x.dtype.char not in "fd"
    )  # float16 is averaged in float32
    y = x.mean(axis=axes) if own else axis_sums(x, axes) / x.dtype.type(n)
    return y.reshape(keepdims_shape(x.shape, axes)) if keepdims else y, (lambda g: spread(g / n),)


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
        xp, zeros = array_module(g), x == 0
        if xp is np and not zeros.any():
            return spread(g * y) / x
        rest = xp.where(zeros, 1, x)
        d = spread(g) * (rest.prod(axis=axes, keepdims=True) / rest)
        # Beside one zero only that has a slope, and beside two none.
        return masked(d, zeros == zeros.sum(axis=axes, keepdims=True))

    return y, (to_x,)


@op
def var(x: Array, *, axis: Axis = None, keepdims: bool = False, ddof: float = 0) -> OpResult:
    """The variance over ``axis``: the sum of squared deviations over the count minus ``ddof``, as in NumPy.

    PyTorch's default is ``ddof=1``. Where ``ddof`` leaves nothing of the count, it is NaN or infinite.
    """
    axes = axes_of(axis, x.ndim)
    value, centred, n = variance(x, axes, keepdims, ddof)
    spread, factor = spreader(x, axes), 2 / n if n else math.inf
    return value, (lambda g: spread(g * factor) * centred,)


@op
def std(x: Array, *, axis: Axis = None, keepdims: bool = False, ddof: float = 0) -> OpResult:
    """The standard deviation, the square root of ``var``; where it is 0, so is its gradient."""
    axes = axes_of(axis, x.ndim)
    value, centred, n = variance(x, axes, keepdims, ddof)
    xp, spread = array_module(x), spreader(x, axes)
    y = xp.sqrt(value)
    return y, (lambda g: spread(g / (xp.where(y == 0, np.inf, y) * n)) * centred,)


@op
def logsumexp(x: Array, *, axis: Axis = None, keepdims: bool = False) -> OpResult:
    """log(sum(exp(x))), shifted by the maximum so that nothing overflows; of no elements it is -inf."""
    xp, axes = array_module(x), axes_of(axis, x.ndim)
    spread = spreader(x, axes)
    largest = largest_keepdims(x, axes)
    largest = xp.where(xp.isfinite(largest), largest, 0)  # infinities are kept by the exponentials
    e = x - largest
    e = xp.exp(e, out=as_out(e))
    total = sums_keepdims(e, axes)
    with np.errstate(divide="ignore"):  # the logarithm of 0 is -inf
        value = xp.log(total) + largest
    return value if keepdims else value.squeeze(axes), (lambda g: spread(g) * (e / total),)


@op
def softmax(x: Array, *, axis: int = -1) -> OpResult:
    """exp(x) / sum(exp(x)) along ``axis``."""
    axes = axes_of(axis, x.ndim)
    if are_rows(x, axes):
        return softmax_of_rows(x)
    y = x - largest_keepdims(x, axes)
    y = array_module(x).exp(y, out=as_out(y))
    y /= y.sum(axis=axes, keepdims=True)

    def to_x(g: Array) -> Array:
        d = g - (g * y).sum(axis=axes, keepdims=True)
        d *= y
        return d

    return y, (to_x,)


def softmax_of_rows(x: np.ndarray) -> OpResult:
    """The same of rows that lie in memory one behind the other, some at a time."""

    def value(x: np.ndarray, y: np.ndarray) -> None:
        y /= row_exponentials(x, y)

    def slope(g: np.ndarray, y: np.ndarray, d: np.ndarray) -> None:
        np.subtract(g, row_dots(g, y)[:, None], out=d)
        d *= y

    rows = x.reshape(-1, x.shape[-1])
    y = np.empty_like(rows)
    in_rows(value, rows, y)

    def to_x(g: Array) -> Array:
        d = np.empty_like(y)
        in_rows(slope, g.reshape(y.shape), y, d)
        return d.reshape(x.shape)

    return y.reshape(x.shape), (to_x,)


def row_exponentials(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Writes exp(x) into y, of which each row may be divided by the same number; its sums (N, 1).

    To find the largest of each row takes as long as the exponentials. It is not taken away where all sums are
    between 1e-7 and 1e30: then no element overflows, and none that is more than 1e-30 of the sum of its row
    loses digits.
    """
    with np.errstate(over="ignore"):
        total = row_sums(np.exp(x, out=y))
    if x.itemsize < 4 or not (total.min() > 1e-7 and total.max() < 1e30):  # NaN too
        np.exp(np.subtract(x, largest_keepdims(x, (1,)), out=y), out=y)
        total = row_sums(y)
    return total[:, None]


@op
def log_softmax(x: Array, *, axis: int = -1) -> OpResult:
    """x - logsumexp(x) along ``axis``, where what all of x have in common is taken away first."""
    axes = axes_of(axis, x.ndim)
    if are_rows(x, axes):
        return log_softmax_of_rows(x)
    xp = array_module(x)
    shifted = x - largest_keepdims(x, axes)
    e = xp.exp(shifted)
    total = e.sum(axis=axes, keepdims=True)

    def to_x(g: Array) -> Array:
        with np.errstate(invalid="ignore"):  # 0 / 0 along an axis without elements
            d = e * (g.sum(axis=axes, keepdims=True) / total)
        return xp.subtract(g, d, out=as_out(d))

    with np.errstate(divide="ignore"):  # the sum of no exponentials is 0
        return xp.subtract(shifted, xp.log(total), out=as_out(shifted)), (to_x,)


def log_softmax_of_rows(x: np.ndarray) -> OpResult:
    """The same of rows that lie in memory one behind the other, some at a time."""

    def value(x: np.ndarray, y: np.ndarray, e: np.ndarray, total: np.ndarray) -> None:
        np.subtract(x, largest_keepdims(x, (1,)), out=y)  # without, a logarithm might be above 0
        total[:, 0] = row_sums(np.exp(y, out=e))
        y -= np.log(total)

    def slope(g: np.ndarray, e: np.ndarray, total: np.ndarray, d: np.ndarray) -> None:
        np.multiply(e, row_sums(g)[:, None] / total, out=d)
        np.subtract(g, d, out=d)

    rows = x.reshape(-1, x.shape[-1])
    y, e, total = np.empty_like(rows), np.empty_like(rows), np.empty_like(rows[:, :1])
    in_rows(value, rows, y, e, total)

    def to_x(g: Array) -> Array:
        d = np.empty_like(e)
        in_rows(slope, g.reshape(e.shape), e, total, d)
        return d.reshape(x.shape)

    return y.reshape(x.shape), (to_x,)


def as_out(x: Array) -> Array | None:
    """``x`` where a function can write floats into it, else None."""
    return x if x.ndim and x.dtype.kind == "f" else None


def variance(x: Array, axes: tuple[int, ...], keepdims: bool, ddof: float) -> tuple[Array, Array, float]:
    """The variance, the deviations from the mean, and the number that the sum of their squares is over."""
    centred = x - x.mean(axis=axes, keepdims=True)
    centred -= centred.mean(axis=axes, keepdims=True)  # what rounding left of a mean far from 0
    n = builtins.max(count(x, axes) - ddof, 0)
    with np.errstate(divide="ignore", invalid="ignore"):  # over 0
        return (centred * centred).sum(axis=axes, keepdims=keepdims) / n, centred, n


def largest_keepdims(x: Array, axes: tuple[int, ...]) -> Array:
    """The largest elements along ``axes``, which are kept as 1; -inf where there are none."""
    reduced = keepdims_shape(x.shape, axes)
    if not x.size:
        return array_module(x).full(reduced, -np.inf, x.dtype if x.dtype.kind == "f" else float)
    if are_rows(x, axes):  # NumPy's max takes up to twice as long for each row
        return np.maximum.reduceat(x.reshape(-1), np.arange(0, x.size, x.shape[-1])).reshape(reduced)
    return x.max(axis=axes, keepdims=True)


def sums_keepdims(x: Array, axes: tuple[int, ...]) -> Array:
    """The sums along ``axes``, which are kept as 1."""
    if are_rows(x, axes):
        return row_sums(x.reshape(-1, x.shape[-1])).reshape(keepdims_shape(x.shape, axes))
    return x.sum(axis=axes, keepdims=True)


def are_rows(x: Array, axes: tuple[int, ...]) -> bool:
    """Whether ``axes`` are the last axis of a NumPy array of floats in C order, which is not empty."""
    return (
        type(x) is np.ndarray
        and axes == (x.ndim - 1,)
        and x.dtype.kind == "f"
        and x.flags.c_contiguous
        and x.size > 0
    )


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
