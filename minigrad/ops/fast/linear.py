"""Linear layers on a GPU, and their weights' gradient, into a buffer or as one product for micro-batches.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``fast/__init__.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...device import Array, array_module, on_gpu
from ...dtypes import in_dtype_of
from ...faster import form_of
from ...product import product
from ...pullback import OpResult
from ...tape import once_for_all
from ..linear import as_rows, linear, weight_pullback
from . import columns
from .cuda_kernels import fits


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
def linear_on_gpu(x: Array, weight: Array, bias: Array | None = None, *, relu: bool = False) -> OpResult:
    """Matrices in C order; a kernel adds the bias, and one masks the gradient and sums it up."""
    if not on_gpu(x):
        return NotImplemented
    x = in_dtype_of(weight, x)
    if not fits(x, weight, *(() if bias is None else (bias,))) or not x.ndim or weight.ndim != 2:
        return NotImplemented
    if x.shape[-1] != weight.shape[1] or bias is not None and bias.shape != weight.shape[:1]:
        return NotImplemented
    xp, rows = array_module(x), as_rows(x)
    y = product(rows, weight.T)
    if relu or bias is not None:
        shift = None if bias is None else xp.ascontiguousarray(bias)
        columns.each_element("add_bias", y, shift, settings=(relu,))

    def masked(g: Array) -> tuple[Array, Array]:
        g = xp.ascontiguousarray(as_rows(g))
        d = xp.empty_like(g) if relu else None
        return d, columns.gradient_sums(g, y if relu else None, d=d)[0]

    read, pullback = once_for_all(masked)
    through = (lambda g: read(g, 0)) if relu else as_rows
    to_x = lambda g: product(through(g), weight).reshape(x.shape)  # noqa: E731
    pullbacks = to_x, WeightPullback(rows, through), pullback(1)
    return y.reshape(*x.shape[:-1], len(weight)), pullbacks if bias is not None else pullbacks[:2]
