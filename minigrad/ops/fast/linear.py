"""The gradient of a linear layer's weight, into a buffer or as one product for several micro-batches.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``fast/__init__.py``.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...device import Array, array_module
from ...faster import form_of
from ...product import product
from ..linear import as_rows, weight_pullback


@form_of(weight_pullback)
class WeightPullback:
    """dw = g.T x for x (N, in), for one gradient or several."""

    __slots__ = ("x",)

    def __init__(self, x: Array):
        self.x = x

    def __call__(self, g: Array) -> Array:
        return product(as_rows(g).T, self.x)

    def into(self, g: Array, buffer: Array) -> bool:
        """Write dw into ``buffer``, unless it is an array of another kind; whether it did."""
        if type(g) is not type(buffer) or not g.dtype == self.x.dtype == buffer.dtype:
            return False
        product(as_rows(g).T, self.x, out=buffer)
        return True

    @staticmethod
    def sum(pullbacks: Sequence[WeightPullback], gs: Sequence[Array]) -> Array:
        """The sum of the gradients, as one product of stacked arrays."""
        xp = array_module(gs[0])
        return xp.concatenate(list(map(as_rows, gs))).T @ xp.concatenate([p.x for p in pullbacks])
