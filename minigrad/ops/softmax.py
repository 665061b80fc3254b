"""Softmax, its logarithm, and the logarithm of its denominator.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``ops/__init__.py``.
"""

from __future__ import annotations

import numpy as np

from .. import loops
from ..device import Array, array_module
from ..op import OpResult, op
from ..tensor import Axis
from .axes import axes_of
from .elementwise import floating
from .fast.exponential import exp
from .half import half_in_single
from .reduce import keepdims_shape, spreader

NEAR = 64  # bytes between the elements of a row, which the processor reads together


@op
@half_in_single
def logsumexp(x: Array, *, axis: Axis = None, keepdims: bool = False) -> OpResult:
    """log(sum(exp(x))), shifted by the maximum so that nothing overflows; of no elements it is -inf."""
    xp, axes, x = array_module(x), axes_of(axis, x.ndim), floating(x)
    spread = spreader(x, axes)
    largest = largest_keepdims(x, axes)
    largest = xp.where(xp.isfinite(largest), largest, 0)  # infinities are kept by the exponentials
    e = exponentials(x - largest)
    total = e.sum(axis=axes, keepdims=True)
    with np.errstate(divide="ignore"):  # the logarithm of 0 is -inf
        value = xp.log(total) + largest
    return value if keepdims else value.squeeze(axes), (lambda g: spread(g) * (e / total),)


@op
@half_in_single
def softmax(x: Array, *, axis: int = -1) -> OpResult:
    """exp(x) / sum(exp(x)) along ``axis``."""
    axes, x = axes_of(axis, x.ndim), floating(x)
    if are_rows(x, axes):
        return by_rows(x, axes[0], logarithm=False)
    y = exponentials(x - largest_keepdims(x, axes))
    y /= y.sum(axis=axes, keepdims=True)

    def to_x(g: Array) -> Array:
        d = g - (g * y).sum(axis=axes, keepdims=True)
        d *= y
        return d

    return y, (to_x,)


@op
@half_in_single
def log_softmax(x: Array, *, axis: int = -1) -> OpResult:
    """x - logsumexp(x) along ``axis``, where what all of x have in common is taken away first."""
    axes, x = axes_of(axis, x.ndim), floating(x)
    if are_rows(x, axes):
        return by_rows(x, axes[0], logarithm=True)
    xp = array_module(x)
    y = x - largest_keepdims(x, axes)
    with np.errstate(divide="ignore"):  # the sum of no exponentials is 0
        y = y - xp.log(xp.exp(y).sum(axis=axes, keepdims=True))
    return y, (lambda g: g - xp.exp(y) * g.sum(axis=axes, keepdims=True),)


def exponentials(x: Array) -> Array:
    """e ** x, where x may be written."""
    return array_module(x).exp(x, out=x if x.ndim and x.dtype.kind == "f" else None)


def largest_keepdims(x: Array, axes: tuple[int, ...]) -> Array:
    """The largest elements along ``axes``, which are kept as 1; -inf where there are none."""
    if not x.size:
        return array_module(x).full(keepdims_shape(x.shape, axes), -np.inf, x.dtype)
    return x.max(axis=axes, keepdims=True)


def are_rows(x: Array, axes: tuple[int, ...]) -> bool:
    """Whether loops take x, and a copy of its rows along ``axes``, a single one, takes little time."""
    return loops.can_take(x) and len(axes) == 1 and abs(x.strides[axes[0]]) <= NEAR


def by_rows(x: np.ndarray, axis: int, logarithm: bool) -> OpResult:
    """Softmax, or its logarithm, of the rows (N, n) that are x along ``axis``."""
    order = [*(i for i in range(x.ndim) if i != axis), axis]
    shape, back = [x.shape[i] for i in order], [order.index(i) for i in range(x.ndim)]

    def rows(a: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(a.transpose(order)).reshape(-1, shape[-1])

    def turned_back(a: np.ndarray) -> np.ndarray:
        return a.reshape(shape).transpose(back)

    x = rows(x)
    y = np.empty_like(x)
    write_softmax(x, x.view(f"i{x.itemsize}"), logarithm, y)

    def to_x(g: np.ndarray) -> np.ndarray:
        d = np.empty_like(y)
        (write_log_softmax_gradient if logarithm else write_softmax_gradient)(y, rows(g), d)
        return turned_back(d)

    return turned_back(y), (to_x,)


@loops.compiled
def write_softmax(x: Array, bits: Array, logarithm: bool, y: Array) -> None:
    """Softmax, or with ``logarithm`` its logarithm. ``bits`` are those of x.

    As integers they have the order of the numbers, and the opposite one below 0. The largest of integers is
    found in several places at a time, that of numbers, which may be NaN, one by one.
    """
    rows, columns = x.shape
    positive, largest_bits = np.iinfo(bits.dtype).max, np.empty(1, bits.dtype)
    largest, e = largest_bits.view(x.dtype), np.empty(columns, x.dtype)
    for i in range(rows):
        most = ~positive
        for j in range(columns):
            b = bits[i, j]
            most = max(most, b if b >= 0 else b ^ positive)
        largest_bits[0] = most if most >= 0 else most ^ positive
        shift = largest[0]
        for j in range(columns):
            y[i, j] = x[i, j] - shift
        for j in range(columns):
            e[j] = exp(y[i, j])
        total = 0.0
        for j in range(columns):
            total += e[j]
        factor, log_total = x.dtype.type(1 / total), x.dtype.type(np.log(total))
        for j in range(columns):
            y[i, j] = y[i, j] - log_total if logarithm else e[j] * factor


@loops.compiled
def write_softmax_gradient(y: Array, g: Array, d: Array) -> None:
    rows, columns = y.shape
    for i in range(rows):
        total = 0.0
        for j in range(columns):
            total += g[i, j] * y[i, j]
        mean = y.dtype.type(total)
        for j in range(columns):
            d[i, j] = (g[i, j] - mean) * y[i, j]


@loops.compiled
def write_log_softmax_gradient(y: Array, g: Array, d: Array) -> None:
    rows, columns = y.shape
    for i in range(rows):
        total = 0.0
        for j in range(columns):
            total += g[i, j]
        factor = y.dtype.type(total)
        for j in range(columns):
            d[i, j] = g[i, j] - factor * exp(y[i, j])
