"""Normalisation of each sample by itself, over groups of its channels.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``norm.py``.
"""

from __future__ import annotations

import math

import numpy as np

from ..device import Array, array_module
from ..op import OpResult, Pullback, op, shape_of
from ..tape import once
from .geometry import are_integers


@op
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
    value, to_x, to_weight, to_bias = normalize_groups(x, int(groups), eps, weight, bias)
    return value, (to_x, to_weight, to_bias)


@op
def instance_norm(
    x: Array, weight: Array | None = None, bias: Array | None = None, *, eps: float = 1e-5
) -> OpResult:
    """Each channel of each sample of x (N, C, ...) with mean 0 and variance 1 (Ulyanov et al. 2016).

    It is then scaled by weight (C,) and shifted by bias (C,) where they are passed. Raises ValueError where
    a shape differs, or where a channel has one value, which would become 0.
    """
    channels = shape_of(x)[1:2]
    given = [shape_of(a) for a in (weight, bias) if a is not None]
    if len(given) == 1 or any(shape != channels for shape in given):
        raise ValueError(
            f"instance_norm of x {shape_of(x)} takes C weights and C biases or neither, got {given}"
        )
    if math.prod(shape_of(x)[2:]) == 1:
        raise ValueError(
            f"instance_norm takes channels of several values, got {shape_of(x)}; use group_norm or layer_norm"
        )
    value, to_x, to_weight, to_bias = normalize_groups(x, x.shape[1], eps, weight, bias)
    return value, ((to_x, to_weight, to_bias) if given else (to_x,))


def normalize_groups(
    x: Array, groups: int, eps: float, weight: Array | None, bias: Array | None
) -> tuple[Array, Pullback, Pullback, Pullback]:
    """The value, and the pullbacks to x, weight and bias; images are channels-last in memory."""
    xp, shape, channels = array_module(x), x.shape, x.shape[1]
    n, pixels = len(x), math.prod(shape[2:])
    last = (0, *range(2, x.ndim), 1)
    back = (0, x.ndim - 1, *range(1, x.ndim - 1))
    count = max(pixels * channels // groups, 1)

    def as_pixels(a: Array) -> Array:
        return xp.ascontiguousarray(a.transpose(last)).reshape(n, pixels, channels)

    def as_images(a: Array) -> Array:
        return a.reshape([shape[i] for i in last]).transpose(back)

    def mean(sums: Array) -> Array:
        """The mean of each group, for each of its channels (N, 1, C), from sums over pixels (N, C)."""
        by_group = sums.reshape(n, groups, channels // groups).sum(axis=2) / count
        return xp.repeat(by_group, channels // groups, axis=1)[:, None]

    a = as_pixels(x if x.dtype.kind == "f" else x.astype(float))
    normal = a - mean(sums_of_pixels(a))
    scale = 1 / xp.sqrt(mean(sums_of_pixels(normal * normal)) + eps)
    normal *= scale
    factor = scale if weight is None else scale * weight

    def sums(g: Array) -> tuple[Array, Array, Array]:
        gs = as_pixels(g)
        return gs, sums_of_pixels(gs), sums_of_pixels(gs * normal)

    shared = once(sums)

    def to_x(g: Array) -> Array:
        gs, total, along = shared(g)
        if weight is not None:
            total, along = total * weight, along * weight
        d = gs * factor
        d -= scale * mean(total)
        d -= normal * (scale * mean(along))
        return as_images(d)

    y = normal if weight is None else normal * weight
    if bias is not None:
        y += bias
    return as_images(y), to_x, (lambda g: shared(g)[2].sum(axis=0)), (lambda g: shared(g)[1].sum(axis=0))


def sums_of_pixels(a: Array) -> Array:
    """(N, C) sums over the pixels of a (N, P, C); on the host as a product, which is faster."""
    xp = array_module(a)
    return (np.ones((1, a.shape[1]), a.dtype) @ a)[:, 0] if xp is np else a.sum(axis=1)
