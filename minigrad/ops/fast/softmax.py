"""Softmax and its logarithm as loops over rows.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``fast/__init__.py``.
"""

from __future__ import annotations

import numpy as np

from ... import loops
from ...device import Array
from ...faster import form_of
from ...pullback import OpResult
from ..axes import Axis, axes_of, spreader
from ..softmax import log_softmax, logsumexp, softmax
from .exponential import exp

NEAR = 64  # bytes between the elements of a row, which the processor reads together


@form_of(softmax)
def softmax_by_rows(x: np.ndarray, *, axis: int = -1) -> OpResult:
    return by_rows(x, axis, logarithm=False)


@form_of(log_softmax)
def log_softmax_by_rows(x: np.ndarray, *, axis: int = -1) -> OpResult:
    return by_rows(x, axis, logarithm=True)


@form_of(logsumexp)
def logsumexp_by_rows(x: np.ndarray, *, axis: Axis = None, keepdims: bool = False) -> OpResult:
    """The largest element less the logarithm of its softmax, which is the gradient."""
    axes = axes_of(axis, x.ndim)
    if not are_rows(x, axes) or not np.isfinite(largest := x.max(axis=axes, keepdims=True)).all():
        return NotImplemented
    p, _ = by_rows(x, axes[0], logarithm=False)
    value, spread = largest - np.log(p.max(axis=axes, keepdims=True)), spreader(x, axes)
    return value if keepdims else value.squeeze(axes), (lambda g: spread(g) * p,)


def are_rows(x: Array, axes: tuple[int, ...]) -> bool:
    """Whether loops take x, and a copy of its rows along ``axes``, a single one, takes little time."""
    return loops.can_take(x) and len(axes) == 1 and abs(x.strides[axes[0]]) <= NEAR


def by_rows(x: np.ndarray, axis: int, logarithm: bool) -> OpResult:
    """Softmax, or its logarithm, of the rows (N, n) that are x along ``axis``."""
    axes = axes_of(axis, x.ndim)
    if not are_rows(x, axes):
        return NotImplemented
    order = [*(i for i in range(x.ndim) if i != axes[0]), *axes]
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
