"""Softmax, its logarithm, and the logarithm of its denominator.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``ops/__init__.py``.

>>> from minigrad import ops
>>> ops.softmax([0.0, 0.0]).data.tolist()
[0.5, 0.5]
"""

from __future__ import annotations

import numpy as np

from ..op import Array, OpResult, array_module, faster, floating, half_by_value, half_in_single, op
from .axes import Axis, axes_of, spreader


@op
@half_in_single
@faster
def logsumexp(x: Array, *, axis: Axis = None, keepdims: bool = False) -> OpResult:
    """log(sum(exp(x))), shifted by the maximum so that nothing overflows; of no elements it is -inf."""
    xp, axes, x = array_module(x), axes_of(axis, x.ndim), floating(x)
    shift = largest(x, axes)
    shift = xp.where(xp.isfinite(shift), shift, 0)  # infinities are kept by the exponentials
    e = xp.exp(x - shift)
    total = e.sum(axis=axes, keepdims=True)
    with np.errstate(divide="ignore"):  # the logarithm of 0 is -inf
        value = xp.log(total) + shift
    spread = spreader(x, axes)
    return value if keepdims else value.squeeze(axes), (lambda g: spread(g) * (e / total),)


@op
@half_by_value(lambda y, g, *, axis=-1: (g - (g * y).sum(axes_of(axis, y.ndim), keepdims=True)) * y)
@faster
def softmax(x: Array, *, axis: int = -1) -> OpResult:
    """exp(x) / sum(exp(x)) along ``axis``."""
    axes, x = axes_of(axis, x.ndim), floating(x)
    e = array_module(x).exp(x - largest(x, axes))
    y = e / e.sum(axis=axes, keepdims=True)
    return y, (lambda g: (g - (g * y).sum(axis=axes, keepdims=True)) * y,)


@op
@half_by_value(
    lambda y, g, *, axis=-1: g - array_module(y).exp(y) * g.sum(axes_of(axis, y.ndim), keepdims=True)
)
@faster
def log_softmax(x: Array, *, axis: int = -1) -> OpResult:
    """x - logsumexp(x) along ``axis``, where what all of x have in common is taken away first."""
    axes = axes_of(axis, x.ndim)
    y = log_probabilities(floating(x), axes)
    return y, (lambda g: g - array_module(y).exp(y) * g.sum(axis=axes, keepdims=True),)


def log_probabilities(x: Array, axes: tuple[int, ...]) -> Array:
    """The logarithm of the softmax along ``axes``; a large common part of x would swallow its digits."""
    xp, shifted = array_module(x), x - largest(x, axes)
    with np.errstate(divide="ignore"):  # the sum of no exponentials is 0
        return shifted - xp.log(xp.exp(shifted).sum(axis=axes, keepdims=True))


def largest(x: Array, axes: tuple[int, ...]) -> Array:
    """The largest elements along ``axes``, which are kept as 1; of an empty array 0."""
    return x.max(axis=axes, keepdims=True) if x.size else array_module(x).zeros((), x.dtype)
