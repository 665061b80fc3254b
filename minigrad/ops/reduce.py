"""Ops that sum up axes, and the softmax family.

Lecture section: back-propagation. Lesson: 02_backpropagation.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable

from ..device import Array, array_module
from ..op import Pulled, op

Axis = int | tuple[int, ...] | None


@op
def sum(x: Array, *, axis: Axis = None, keepdims: bool = False) -> Pulled:
    """The sum over ``axis`` (all axes when None)."""
    spread = spreader(x, axis)
    return x.sum(axis=axis, keepdims=keepdims), (spread,)


@op
def mean(x: Array, *, axis: Axis = None, keepdims: bool = False) -> Pulled:
    """The mean over ``axis`` (all axes when None)."""
    spread, n = spreader(x, axis), count(x, axis)
    return x.mean(axis=axis, keepdims=keepdims), (lambda g: spread(g / n),)


@op
def max(x: Array, *, axis: Axis = None, keepdims: bool = False) -> Pulled:
    """The largest element; equal ones share the gradient evenly."""
    y = x.max(axis=axis, keepdims=keepdims)
    return y, (share_of_extremum(x, y, axis),)


@op
def min(x: Array, *, axis: Axis = None, keepdims: bool = False) -> Pulled:
    """The smallest element; equal ones share the gradient evenly."""
    y = x.min(axis=axis, keepdims=keepdims)
    return y, (share_of_extremum(x, y, axis),)


@op
def var(x: Array, *, axis: Axis = None, keepdims: bool = False) -> Pulled:
    """The variance over ``axis``, divided by the count (not the count minus one)."""
    spread, n = spreader(x, axis), count(x, axis)
    centred = x - x.mean(axis=axis, keepdims=True)
    value = (centred * centred).mean(axis=axis, keepdims=keepdims)
    return value, (lambda g: spread(g * (2 / builtins.max(n, 1))) * centred,)


@op
def logsumexp(x: Array, *, axis: Axis = None, keepdims: bool = False) -> Pulled:
    """log(sum(exp(x))), shifted by the maximum so that nothing overflows."""
    spread = spreader(x, axis)
    p, total = softmax_and_logsumexp(x, axis)
    value = total if keepdims else total.reshape(x.sum(axis=axis).shape)
    return value, (lambda g: spread(g) * p,)


@op
def softmax(x: Array, *, axis: int = -1) -> Pulled:
    """exp(x) / sum(exp(x)) along ``axis``."""
    y, _ = softmax_and_logsumexp(x, axis)
    return y, (lambda g: y * (g - (g * y).sum(axis=axis, keepdims=True)),)


@op
def log_softmax(x: Array, *, axis: int = -1) -> Pulled:
    """x - logsumexp(x) along ``axis``."""
    p, total = softmax_and_logsumexp(x, axis)
    return x - total, (lambda g: g - p * g.sum(axis=axis, keepdims=True),)


def softmax_and_logsumexp(x: Array, axis: Axis) -> tuple[Array, Array]:
    """The softmax of an array, and the logarithm of its denominator with ``axis`` kept."""
    xp = array_module(x)
    largest = x.max(axis=axis, keepdims=True)
    e = xp.exp(x - largest)
    total = e.sum(axis=axis, keepdims=True)
    e /= total
    return e, xp.log(total) + largest


def spreader(x: Array, axis: Axis) -> Callable[[Array], Array]:
    """g of the reduced shape -> a view of it in ``x``'s shape."""
    shape, dtype, kept = x.shape, x.dtype, kept_shape(x.shape, axis)

    def spread(g: Array) -> Array:
        xp = array_module(g)
        return xp.broadcast_to(xp.asarray(g, dtype=dtype).reshape(kept), shape)

    return spread


def share_of_extremum(x: Array, y: Array, axis: Axis) -> Callable[[Array], Array]:
    spread, kept = spreader(x, axis), kept_shape(x.shape, axis)

    def to_x(g: Array) -> Array:
        hit = x == y.reshape(kept)
        return spread(g / hit.sum(axis=axis).reshape(g.shape).astype(x.dtype)) * hit

    return to_x


def kept_shape(shape: tuple[int, ...], axis: Axis) -> tuple[int, ...]:
    """``shape`` with the reduced axes kept as 1."""
    if axis is None:
        return (1,) * len(shape)
    axes = {a % len(shape) for a in (axis if isinstance(axis, tuple) else (axis,))}
    return tuple(1 if i in axes else n for i, n in enumerate(shape))


def count(x: Array, axis: Axis) -> int:
    """How many elements of ``x`` go into each element of the result."""
    n = 1
    for size, kept in zip(x.shape, kept_shape(x.shape, axis), strict=True):
        n *= 1 if size == kept else size
    return n
