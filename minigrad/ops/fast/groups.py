"""Groups of channels, each of which is a convolution of its own.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``fast/conv.py``.
"""

from __future__ import annotations

from ...device import Array, array_module
from ..conv import Algorithm, Convolved
from ..geometry import Geometry


def one_by_one(algorithm: Algorithm) -> Algorithm:
    """``algorithm`` for one group, applied to each."""

    def in_groups(x: Array, w: Array, geometry: Geometry) -> Convolved:
        groups, xp = geometry.groups, array_module(x)
        if groups == 1:
            return algorithm(x, w, geometry)
        alone = geometry._replace(groups=1)
        pairs = zip(xp.split(x, groups, 3), xp.split(w, groups), strict=True)
        values, pullbacks = zip(*(algorithm(a, b, alone) for a, b in pairs), strict=True)
        to_images, to_kernels = zip(*pullbacks, strict=True)

        def to_image(g: Array) -> Array:
            parts = zip(to_images, xp.split(g, groups, 3), strict=True)
            return xp.concatenate([pull(xp.ascontiguousarray(part)) for pull, part in parts], 3)

        def to_kernel(g: Array) -> Array:
            parts = zip(to_kernels, xp.split(g, groups, 3), strict=True)
            return xp.concatenate([pull(xp.ascontiguousarray(part)) for pull, part in parts])

        return xp.concatenate(values, 3), (to_image, to_kernel)

    return in_groups


def split_groups(x: Array, groups: int) -> Array:
    """x (N, H, W, C) with an axis of groups: (groups, N, H, W, C / groups), a view."""
    if groups == 1:
        return x[None]
    *sizes, channels = x.shape
    return x.reshape(*sizes, groups, channels // groups).transpose(3, 0, 1, 2, 4)


def rotated_kernel(w: Array, groups: int) -> Array:
    """The kernel of the image gradient: w (F, C / groups, kh, kw) turned round, (C, F / groups, kh, kw)."""
    filters, channels, kh, kw = w.shape
    w = w.reshape(groups, filters // groups, channels, kh, kw)[..., ::-1, ::-1]
    return w.transpose(0, 2, 1, 3, 4).reshape(groups * channels, filters // groups, kh, kw)
