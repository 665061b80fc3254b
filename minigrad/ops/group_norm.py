"""Normalisation of each sample by itself, over groups of its channels.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``ops/__init__.py``.
"""

from __future__ import annotations

import math

from ..device import Array, array_module
from ..dtypes import floating
from ..faster import faster
from ..half import half_in_single
from ..op import op
from ..pullback import OpResult, Pullback, shape_of
from ..tape import once
from .geometry import are_integers

Normalized = tuple[Array, tuple[Pullback, Pullback, Pullback]]


@op
@half_in_single
def group_norm(x: Array, weight: Array, bias: Array, *, groups: int, eps: float = 1e-5) -> OpResult:
    """Each sample of x (N, C, ...) with mean 0 and variance 1 over each of ``groups`` groups of channels.

    The channels are then scaled by weight (C,) and shifted by bias (C,) (Wu and He 2018). Raises ValueError
    where a shape differs or the groups do not divide the channels.
    """
    channels = shape_of(x)[1:2]
    if not channels or not shape_of(weight) == shape_of(bias) == channels:
        raise ValueError(
            f"group_norm takes x (N, C, ...), C weights and C biases, got {shape_of(x)}, {shape_of(weight)} "
            f"and {shape_of(bias)}"
        )
    if not are_integers((groups,), 1, 1) or channels[0] % groups:
        raise ValueError(f"groups={groups} must be an integer that divides the {channels[0]} channels")
    return by_groups(x, weight, bias, int(groups), eps)


@op
@half_in_single
def instance_norm(
    x: Array, weight: Array | None = None, bias: Array | None = None, *, eps: float = 1e-5
) -> OpResult:
    """Each channel of each sample of x (N, C, ...) with mean 0 and variance 1 (Ulyanov et al. 2016).

    It is then scaled by weight (C,) and shifted by bias (C,) where they are passed. Raises ValueError where
    a shape differs, or where a channel has one value, which would become 0.
    """
    channels = shape_of(x)[1:2]
    shapes = [shape_of(a) for a in (weight, bias) if a is not None]
    if len(shapes) == 1 or any(shape != channels for shape in shapes):
        raise ValueError(
            f"instance_norm of x {shape_of(x)} takes C weights and C biases or neither, got {shapes}"
        )
    if math.prod(shape_of(x)[2:]) == 1:
        raise ValueError(
            f"instance_norm takes channels of several values, got {shape_of(x)}; use group_norm or layer_norm"
        )
    if weight is None or bias is None:
        xp, dtype = array_module(x), floating(x).dtype
        weight, bias = xp.ones(channels, dtype), xp.zeros(channels, dtype)
    value, pullbacks = by_groups(x, weight, bias, max(x.shape[1], 1), eps)
    return value, pullbacks if shapes else pullbacks[:1]


def by_groups(x: Array, weight: Array, bias: Array, groups: int, eps: float) -> Normalized:
    """The op on samples as pixels (N, P, C), as which images lie in memory."""
    xp, shape, ndim = array_module(x), x.shape, x.ndim

    def pixels(a: Array) -> Array:
        a = xp.ascontiguousarray(a.transpose(0, *range(2, ndim), 1))
        return a.reshape(shape[0], math.prod(shape[2:]), shape[1])

    def images(a: Array) -> Array:
        return a.reshape(shape[0], *shape[2:], shape[1]).transpose(0, ndim - 1, *range(1, ndim - 1))

    x = pixels(floating(x, weight))
    y, (to_x, to_weight, to_bias) = by_pixels(x, weight, bias, groups, eps)
    g_pixels = once(pixels)  # one array for all, so that they share their sums
    to_parameters = (lambda g: to_weight(g_pixels(g))), (lambda g: to_bias(g_pixels(g)))
    return images(y), (lambda g: images(to_x(g_pixels(g))), *to_parameters)


@faster
def by_pixels(x: Array, weight: Array, bias: Array, groups: int, eps: float) -> Normalized:
    """The op on samples (N, P, C): over all pixels of each group of channels."""
    xp, (samples, n_pixels, channels) = array_module(x), x.shape
    size = channels // groups

    def mean(a: Array) -> Array:
        """That of each group, for each of its channels: (N, 1, C)."""
        sums = a.reshape(samples, n_pixels, groups, size).sum(axis=(1, 3))
        return xp.repeat(sums / max(n_pixels * size, 1), size, axis=1)[:, None]

    centred = x - mean(x)
    scale = 1 / xp.sqrt(mean(centred * centred) + eps)
    normal = centred * scale

    def to_x(g: Array) -> Array:
        d = g * weight
        return (d - mean(d) - normal * mean(d * normal)) * scale

    return normal * weight + bias, (to_x, lambda g: (g * normal).sum((0, 1)), lambda g: g.sum((0, 1)))
