"""Normalisation of each sample over its features.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``ops/__init__.py``.
"""

from __future__ import annotations

from ..device import Array, array_module
from ..dtypes import floating
from ..faster import faster
from ..half import half_in_single
from ..op import op
from ..pullback import OpResult
from .trailing_axes import over_trailing_axes


@op
@over_trailing_axes
@half_in_single
@faster
def layer_norm(x: Array, weight: Array, bias: Array, *, eps: float = 1e-5) -> OpResult:
    """Each sample's last axes with mean 0 and variance 1, times weight, plus bias (Ba et al. 2016).

    The shape of ``weight`` says which last axes of x are normalized. Raises ValueError where it is another.
    """
    x, xp = floating(x, weight), array_module(x)

    def mean(a: Array) -> Array:
        return a.sum(axis=-1, keepdims=True) / max(a.shape[-1], 1)

    centred = x - mean(x)
    scale = 1 / xp.sqrt(mean(centred * centred) + eps)
    normal = centred * scale

    def to_x(g: Array) -> Array:
        d = g * weight
        return (d - mean(d) - normal * mean(d * normal)) * scale

    return normal * weight + bias, (to_x, lambda g: g * normal, lambda g: g)
