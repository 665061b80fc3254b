"""Ops whose result at each place depends on all elements up to there.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``ops/__init__.py``.

>>> from minigrad import ops
>>> ops.cumsum([1.0, 2.0, 3.0], axis=0).data.tolist()
[1.0, 3.0, 6.0]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..op import Array, OpResult, array_module, faster, half_in_single, op
from .axes import axis_of


@op
@half_in_single
def cumsum(x: Array, *, axis: int) -> OpResult:
    """The sums of the elements along ``axis`` up to each of them."""
    axis = axis_of(axis, max(x.ndim, 1))
    return running_sums(x, axis), (lambda g: running_sums(g, axis, backwards=True),)


@op
@half_in_single
@faster
def cumprod(x: Array, *, axis: int) -> OpResult:
    """The products of the elements along ``axis`` up to each of them; zeros and infinities have gradients."""
    axis = axis_of(axis, max(x.ndim, 1))
    y = scan(array_module(x).cumprod, x, axis)
    return y, (lambda g: products_before(y, axis) * sums_of_products_after(g, x, axis),)


def products_before(y: Array, axis: int) -> Array:
    """The products of the elements before each one along ``axis``, from the running products y."""
    if not y.ndim:
        return array_module(y).ones_like(y)
    rows = y.swapaxes(0, axis)
    return array_module(y).concatenate([array_module(y).ones_like(rows[:1]), rows[:-1]]).swapaxes(0, axis)


def sums_of_products_after(g: Array, x: Array, axis: int) -> Array:
    """s with s[i] = g[i] + x[i + 1] s[i + 1] along ``axis``, of twice as many terms in each pass.

    Nothing is divided: zeros and infinities are factors as others.
    """
    if not x.ndim:
        return g
    xp, sums, products, step = array_module(x), g.swapaxes(0, axis), x.swapaxes(0, axis)[1:], 1
    while step < len(sums):
        sums = xp.concatenate([sums[:-step] + products * sums[step:], sums[-step:]])
        products, step = products[:-step] * products[step:], 2 * step
    return sums.swapaxes(0, axis)


@faster
def running_sums(x: Array, axis: int, backwards: bool = False) -> Array:
    """The sums of x along ``axis`` up to each element, or ``backwards`` from it to the last one."""
    turned = (..., *[slice(None, None, -1 if backwards and i == axis else None) for i in range(x.ndim)])
    return scan(array_module(x).cumsum, x[turned], axis)[turned]


def scan(function: Callable[..., Any], x: Array, axis: int) -> Array:
    """``function`` along ``axis``; a number is a row of one."""
    return function(x, axis) if x.ndim else function(x.reshape(1), 0).reshape(())
