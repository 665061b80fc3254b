"""Normalisation of the last axes by their root mean square.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``ops/__init__.py``.
"""

from __future__ import annotations

import numpy as np

from ..device import Array, array_module
from ..dtypes import floating
from ..half import half_in_single
from ..op import op
from ..pullback import OpResult
from .trailing_axes import over_trailing_axes


@op
@over_trailing_axes
def rms_norm(x: Array, weight: Array, *, eps: float | None = None) -> OpResult:
    """x / sqrt(mean of x * x + eps) * weight, the mean over the axes of weight, which are x's last ones.

    No mean is subtracted (Zhang and Sennrich 2019). ``eps`` is by default that of x's dtype, as in PyTorch.
    """
    x = floating(x, weight)
    return by_root_mean_square(x, weight, eps=float(np.finfo(x.dtype).eps) if eps is None else eps)


@half_in_single
def by_root_mean_square(x: Array, weight: Array, *, eps: float) -> OpResult:
    xp = array_module(x)
    features = max(x.shape[-1], 1)
    scale = 1 / xp.sqrt((x * x).sum(axis=-1, keepdims=True) / features + eps)
    normal = x * scale

    def to_x(g: Array) -> Array:
        d = g * weight
        d -= normal * ((d * normal).sum(axis=-1, keepdims=True) / features)
        d *= scale
        return d

    return normal * weight, (to_x, lambda g: g * normal)
