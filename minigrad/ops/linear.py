"""Products of matrices. Lecture section: back-propagation. Lesson: 02_backpropagation.

>>> from minigrad import ops
>>> ops.linear([[1.0, 2.0]], [[3.0, 4.0]], [5.0]).data.tolist()
[[16.0]]
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

import numpy as np

from ..device import on_gpu
from ..half import in_single, rounded
from ..op import (
    Array,
    OpResult,
    Pullback,
    array_module,
    check_choice,
    faster,
    faster_on_gpu,
    in_dtype_of,
    once,
    op,
    shape_of,
)
from ..product import product
from .activation import exact_gelu
from .selection import positive_part, sum_by_row, where_positive


@op
def matmul(x: Array, y: Array) -> OpResult:
    """x @ y for vectors, matrices and broadcast stacks of matrices.

    Raises ValueError where the inner sizes differ.
    """
    first, second = shape_of(x), shape_of(y)
    if not first or not second or first[-1] != second[max(len(second) - 2, 0)]:
        raise ValueError(
            f"matmul of shapes {first} and {second}: the last axis of the first must equal the last but one "
            "(or only) axis of the second; transpose or reshape one of them, or multiply with *"
        )

    def to_x(g: Array) -> Array:
        if y.ndim == 1:
            return g[..., None] * y
        if x.ndim == 1:
            return product(g[..., None, :], y.swapaxes(-1, -2))[..., 0, :]
        return product(g, y.swapaxes(-1, -2))

    def to_y(g: Array) -> Array:
        if x.ndim == 1:
            return x[:, None] * g[..., None, :] if y.ndim > 1 else x * g
        if y.ndim == 1:
            return product(g.reshape(1, g.size), as_rows(x))[0]
        return product(x.swapaxes(-1, -2), g)

    return product(x, y), (to_x, to_y)


@op
@faster_on_gpu
def linear(x: Array, weight: Array, bias: Array | None = None, *, activation: str = "none") -> OpResult:
    """x w.T + b for x (..., in), weight (out, in) and bias (out,), as one product of all rows of x.

    A matrix x is multiplied as (w x.T).T, with the big operand on the left and the samples last in memory,
    which is up to a half faster at few rows. x is taken in the dtype of weight. The value is that of an
    ``activation``, which may be "relu", "gelu" or "none". Raises ValueError for another one, and where the
    shapes do not fit.
    """
    first, second = shape_of(x), shape_of(weight)
    if not first or len(second) != 2 or first[-1] != second[1]:
        raise ValueError(
            f"linear takes x (..., in) and weight (out, in), got x {first} and weight {second}; flatten or "
            f"resize x to {second[-1] if second else 1} features, or change the weight's last axis"
        )
    if bias is not None and shape_of(bias) != second[:1]:
        raise ValueError(f"linear with weight {second} needs bias {second[:1]}, got {shape_of(bias)}")
    if (kind := weight.dtype.char) != x.dtype.char:
        x = in_dtype_of(weight, x)
    if kind == "e" and type(x) is np.ndarray:
        return linear_of_halves(x, weight, bias, activation)
    rows = x if len(first) == 2 else as_rows(x)
    if len(first) == 2:
        y, to_x = product(weight, x.T).T, lambda g: product(weight.T, g.T).T
    else:
        y = product(rows, weight.T).reshape(*first[:-1], second[0])
        to_x = lambda g: product(as_rows(g), weight).reshape(first)  # noqa: E731
    if activation != "none":
        y, (before, to_bias) = activated(y, bias, activation)
        to_weight = weight_pullback(rows, before)
        return y, (lambda g: to_x(before(g)), to_weight, to_bias)[: 2 if bias is None else 3]
    if bias is None:
        return y, (to_x, weight_pullback(rows))
    y = y if y.dtype == bias.dtype else y.astype(array_module(y).result_type(y, bias), copy=False)
    y += bias
    return y, (to_x, weight_pullback(rows), lambda g: g)


def linear_of_halves(x: Array, weight: Array, bias: Array | None, activation: str) -> OpResult:
    """``linear`` of float16: the sum with the bias is rounded once, then the activation of that."""
    rows, wide = as_rows(x), in_single(weight)
    y = product(wide, in_single(x).T).T if x.ndim == 2 else product(in_single(rows), wide.T)
    y = rounded(y if bias is None else y + bias, x.dtype).reshape(*x.shape[:-1], len(weight))
    before, to_bias = as_rows, lambda g: g
    if activation != "none":
        y, (before, to_bias) = activated(y, None, activation)

    def to_x(g: Array) -> Array:
        d = before(g)
        return (product(weight.T, d.T).T if x.ndim == 2 else product(as_rows(d), weight)).reshape(x.shape)

    return y, (to_x, weight_pullback(rows, before), to_bias)[: 2 if bias is None else 3]


@faster
def activated(y: Array, bias: Array | None, activation: str) -> tuple[Array, tuple[Any, Any]]:
    """The ``activation`` of y + bias, which may be written into y; the pullbacks to y and to the bias."""
    check_choice("activation", activation, ("relu", "gelu", "none"))
    y = y if bias is None else y + bias
    if activation == "gelu":
        value, (to_y, *_) = exact_gelu(y)
        before = once(cast("Pullback", to_y))
    else:
        value = positive_part(y)
        before = once(lambda g: where_positive(g, value))
    return value, (before, before)


@faster
def weight_pullback(x: Array, before: Callable[[Array], Array] = lambda g: g) -> Pullback:
    """dw = g.T x for x (N, in) and a gradient g that ``before`` leads back through an activation."""
    return lambda g: product(as_rows(before(g)).T, x)


def as_rows(x: Array) -> Array:
    """x (..., n) as a matrix of rows, a view where its memory allows that."""
    return x if x.ndim == 2 else x.reshape(math.prod(x.shape[:-1]), x.shape[-1])


@op
def embedding(weight: Array, indices: Array) -> OpResult:
    """Row ``indices[...]`` of weight (rows, width): shape (*indices.shape, width).

    Raises TypeError for indices that are not integers, ValueError for one out of range; of an index out of
    range that lies on a GPU, where the host would have to wait for it, the row is NaN.
    """
    xp, gpu = array_module(weight), on_gpu(indices)
    indices = indices if gpu else np.asarray(indices)
    if len(shape_of(weight)) != 2:
        raise ValueError(f"embedding takes a table (rows, width), got {shape_of(weight)}; reshape it")
    rows, width = weight.shape
    if indices.dtype.kind not in "iu":
        raise TypeError(
            f"embedding needs integer indices, got {indices.dtype}; convert them with .astype(int)"
        )
    if not gpu and indices.size and not (indices.min() >= 0 and indices.max() < rows):
        raise ValueError(
            f"embedding indices run from {int(indices.min())} to {int(indices.max())}, "
            f"the table has rows 0 to {rows - 1}; enlarge the table or correct the indices"
        )
    indices = xp.asarray(indices)
    value = xp.take(weight, indices, axis=0)  # twice as fast as weight[indices]
    if gpu:
        value = xp.where(((indices >= 0) & (indices < rows))[..., None], value, xp.nan)
    return value, (lambda g: sum_by_row(g.reshape(-1, width), indices.reshape(-1), rows), None)
