"""Linear layers on a GPU, with an activation on the host, and their weights' gradient: into a buffer, or as
one product for micro-batches.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``fast/__init__.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from ... import loops
from ...device import Array, array_module, on_gpu
from ...dtypes import in_dtype_of
from ...faster import form_of
from ...product import product
from ...pullback import OpResult, Pullback
from ...tape import once, once_for_all
from ..activation import exact_gelu
from ..linear import activated, as_rows, linear, weight_pullback
from ..selection import positive_part, where_positive
from . import columns, linear_loops
from .cuda_kernels import can_take, ceil, launch

Layer = tuple[Array, tuple[Pullback, ...]]  # the value; the pullbacks to rows, weight and bias
MOST_ROWS, MOST_INPUTS, MOST_OUTPUTS = 256, 512, 32  # of a product for which a launch of cuBLAS takes longer


@form_of(weight_pullback)
class WeightPullback:
    """dw = g.T x for x (N, in), for one gradient or several."""

    __slots__ = ("before", "x")

    def __init__(self, x: Array, before: Callable[[Array], Array] = as_rows):
        self.x, self.before = x, before

    def __call__(self, g: Array) -> Array:
        return product(as_rows(self.before(g)).T, self.x)

    def into(self, g: Array, buffer: Array) -> bool:
        """Write dw into ``buffer``, unless it is an array of another kind; whether it did."""
        if type(g) is not type(buffer) or not g.dtype == self.x.dtype == buffer.dtype:
            return False
        product(as_rows(self.before(g)).T, self.x, out=buffer)
        return True

    @staticmethod
    def sum(pullbacks: Sequence[WeightPullback], gs: Sequence[Array]) -> Array:
        """The sum of the gradients, as one product of stacked arrays."""
        xp = array_module(gs[0])
        rows = [as_rows(p.before(g)) for p, g in zip(pullbacks, gs, strict=True)]
        return product(xp.concatenate(rows).T, xp.concatenate([p.x for p in pullbacks]))


@form_of(linear)
def linear_by_kernels(
    x: Array, weight: Array, bias: Array | None = None, *, activation: str = "none"
) -> OpResult:
    """Matrices in C order; a kernel adds the bias, and one masks the gradient and sums it up."""
    if not on_gpu(x) or activation not in ("none", "relu"):
        return NotImplemented
    x = in_dtype_of(weight, x)
    if not can_take(x, weight, *(() if bias is None else (bias,))) or not x.ndim or weight.ndim != 2:
        return NotImplemented
    if x.shape[-1] != weight.shape[1] or bias is not None and bias.shape != weight.shape[:1]:
        return NotImplemented
    rows = as_rows(x)
    few = len(rows) <= MOST_ROWS and len(weight) <= MOST_OUTPUTS and weight.shape[1] <= MOST_INPUTS
    layer = by_own_kernels if few else by_products
    y, (to_rows, *others) = layer(rows, weight, bias, activation == "relu")
    others = others if bias is not None else others[:1]
    if x.ndim == 2:
        return y, (to_rows, *others)
    return y.reshape(*x.shape[:-1], len(weight)), (lambda g: to_rows(g).reshape(x.shape), *others)


def by_products(x: Array, weight: Array, bias: Array | None, relu: bool) -> Layer:
    """The layer of rows x, by cuBLAS."""
    xp, y = array_module(x), product(x, weight.T)
    if relu or bias is not None:
        shift = None if bias is None else xp.ascontiguousarray(bias)
        columns.each_element("add_bias", y, shift, settings=(relu,))
    after_relu = y if relu else None

    def masked(g: Array) -> tuple[Array | None, Array]:
        g = xp.ascontiguousarray(as_rows(g), x.dtype)
        d = xp.empty_like(g) if relu else None
        return d, columns.gradient_sums(g, after_relu, d=d)[0]

    read, pullback = once_for_all(masked)
    before = (lambda g: read(g, 0)) if relu else as_rows
    return y, (lambda g: product(before(g), weight), WeightPullback(x, before), pullback(1))


def by_own_kernels(x: Array, weight: Array, bias: Array | None, relu: bool) -> Layer:
    """The layer of rows x in one launch each way."""
    xp, sizes = array_module(x), (*x.shape, len(weight))
    x, weight = xp.ascontiguousarray(x), xp.ascontiguousarray(weight)
    y = xp.empty((len(x), len(weight)), x.dtype)

    def call(name: str, threads: int, *arrays: Any) -> None:
        launch("linear.cu", name, (ceil(threads, 256),), 256, *arrays, *sizes, dtype=x.dtype)

    shift = None if bias is None else xp.ascontiguousarray(bias)
    call("small_linear", y.size, x, weight, shift, y, relu)
    after_relu = y if relu else None

    def gradients(g: Array) -> list[Array]:
        results = [xp.empty(shape, x.dtype) for shape in (x.shape, weight.shape, len(weight))]
        threads = x.size + weight.size + len(weight)
        g = xp.ascontiguousarray(as_rows(g), x.dtype)
        call("small_linear_gradients", threads, g, after_relu, x, weight, *results)
        return results

    _, pullback = once_for_all(gradients)
    return y, (pullback(0), pullback(1), pullback(2))


@form_of(activated)
def activated_in_place(y: Array, bias: Array | None, activation: str) -> OpResult:
    """The product's own memory holds its sum with the bias, and its ReLU."""
    if type(y) is not np.ndarray or bias is None or bias.dtype != y.dtype or activation not in LOOPS_FROM:
        return NotImplemented
    if y.size >= LOOPS_FROM[activation] and (y.flags.c_contiguous or y.ndim == 2) and loops.can_take(y, bias):
        return linear_loops.activated(y, np.ascontiguousarray(bias), activation)
    y += bias
    if activation == "gelu":
        value, (to_y, *_) = exact_gelu(y)
        before = once(cast("Pullback", to_y))
    else:
        value = positive_part(y, out=y)
        before = once(lambda g: where_positive(g, value))
    return value, (before, before)


LOOPS_FROM = {"relu": 1 << 14, "gelu": 1}
"""The number of elements from which loops save more than the import of Numba takes; GELU needs it anyway."""
