"""Linear layers on a GPU, and their weights' gradient, into a buffer or as one product for micro-batches.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``fast/__init__.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ...device import Array, array_module, on_gpu
from ...dtypes import in_dtype_of
from ...faster import form_of
from ...op import op
from ...product import product
from ...pullback import OpResult
from ...tape import OnceForAll
from ...tensor_base import TensorBase
from ..linear import as_rows, linear, linear_relu, weight_pullback
from . import columns
from .cuda_kernels import fits

if TYPE_CHECKING:
    from ...tensor import Tensor


@form_of(weight_pullback)
class WeightPullback:
    """dw = g.T x for x (N, in), for one gradient or several."""

    __slots__ = ("through", "x")

    def __init__(self, x: Array, through: Callable[[Array], Array] = as_rows):
        self.x, self.through = x, through

    def __call__(self, g: Array) -> Array:
        return product(self.through(g).T, self.x)

    def into(self, g: Array, buffer: Array) -> bool:
        """Write dw into ``buffer``, unless it is an array of another kind; whether it did."""
        if type(g) is not type(buffer) or not g.dtype == self.x.dtype == buffer.dtype:
            return False
        product(self.through(g).T, self.x, out=buffer)
        return True

    @staticmethod
    def sum(pullbacks: Sequence[WeightPullback], gs: Sequence[Array]) -> Array:
        """The sum of the gradients, as one product of stacked arrays."""
        xp = array_module(gs[0])
        rows = [p.through(g) for p, g in zip(pullbacks, gs, strict=True)]
        return xp.concatenate(rows).T @ xp.concatenate([p.x for p in pullbacks])


@form_of(linear)
def linear_on_gpu(x: Array, weight: Array, bias: Array | None = None) -> OpResult:
    """Matrices in C order, as the kernels of the losses and of other layers take them."""
    x = in_dtype_of(weight, x) if on_gpu(x) else x
    return with_relu(x, weight, bias, relu=False) if are_taken(x, weight, bias) else NotImplemented


@form_of(linear_relu)
def linear_relu_on_gpu(x: Any, weight: Any, bias: Any = None) -> Tensor:
    """One op: a kernel masks the gradient and sums it up for the bias."""
    inputs = (x, weight) if bias is None else (x, weight, bias)
    rows, *parameters = (a.data if isinstance(a, TensorBase) else a for a in inputs)
    fitting = on_gpu(rows) and are_taken(in_dtype_of(parameters[0], rows), *parameters)
    return linear_with_relu(*inputs) if fitting else NotImplemented


def are_taken(x: Array, weight: Array, bias: Array | None = None) -> bool:
    """Whether these are of one GPU and dtype, and of shapes that fit."""
    given = (x, weight) if bias is None else (x, weight, bias)
    if not on_gpu(x) or not fits(*given) or not x.ndim or weight.ndim != 2:
        return False
    return x.shape[-1] == weight.shape[1] and (bias is None or bias.shape == weight.shape[:1])


@op
def linear_with_relu(x: Array, weight: Array, bias: Array | None = None) -> OpResult:
    return with_relu(in_dtype_of(weight, x), weight, bias, relu=True)


def with_relu(x: Array, weight: Array, bias: Array | None, relu: bool) -> OpResult:
    """x w.T + b, with ``relu`` what is positive of it."""
    xp, rows = array_module(x), as_rows(x)
    y = product(rows, weight.T)
    if relu or bias is not None:
        shift = None if bias is None else xp.ascontiguousarray(bias)
        columns.each_element("add_bias", y, shift, settings=(relu,))

    @OnceForAll
    def masked(g: Array) -> tuple[Array, Array]:
        g = xp.ascontiguousarray(as_rows(g))
        d = xp.empty_like(g) if relu else None
        return d, columns.gradient_sums(g, y if relu else None, d=d)[0]

    through = (lambda g: masked.read(g, 0)) if relu else as_rows
    to_x = lambda g: product(through(g), weight).reshape(x.shape)  # noqa: E731
    pullbacks = to_x, WeightPullback(rows, through), masked.pullback(1)
    return y.reshape(*x.shape[:-1], len(weight)), pullbacks if bias is not None else pullbacks[:2]
