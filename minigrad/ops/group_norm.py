"""Normalisation of each sample by itself, over groups of its channels.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``ops/__init__.py``.

>>> from minigrad import ops
>>> ops.group_norm([[[1.0], [3.0]]], [1.0, 1.0], [0.0, 0.0], groups=1).data.round(3).tolist()
[[[-1.0], [1.0]]]
"""

from __future__ import annotations

import math

from ..half import layer_in_single
from ..integer_settings import are_integers
from ..memory_order import channels_last
from ..op import Array, OpResult, Pullback, array_module, faster, floating, once, op, shape_of
from .layer_norm import mean_over, standardized

Normalized = tuple[Array, tuple[Pullback, Pullback, Pullback]]


@op
@layer_in_single
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
    return group_norm_by_pixels(x, weight, bias, int(groups), eps)


@op
@layer_in_single
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
    value, pullbacks = group_norm_by_pixels(x, weight, bias, max(x.shape[1], 1), eps)
    return value, pullbacks if shapes else pullbacks[:1]


def group_norm_by_pixels(x: Array, weight: Array, bias: Array, groups: int, eps: float) -> Normalized:
    """The op on samples as pixels, (N, P, C)."""
    pixels, images = channels_last(x, len(x), math.prod(x.shape[2:]))
    y, (to_x, to_weight, to_bias) = by_pixels(pixels(floating(x, weight)), weight, bias, groups, eps)
    rows = once(pixels)  # one array for all pullbacks, so that they share their sums
    to_parameters = (lambda g: to_weight(rows(g))), (lambda g: to_bias(rows(g)))
    return images(y), (lambda g: images(to_x(rows(g))), *to_parameters)


@faster
def by_pixels(x: Array, weight: Array, bias: Array, groups: int, eps: float) -> Normalized:
    """The op on samples (N, P, C): over all pixels of each group of channels."""
    shape, (samples, n_pixels, channels) = x.shape, x.shape
    by_group = samples, n_pixels, groups, channels // groups
    mean = mean_over((1, 3), n_pixels * channels // groups)
    normal, to_x = standardized(x.reshape(by_group), mean, eps)
    normal = normal.reshape(shape)
    return normal * weight + bias, (
        lambda g: to_x((g * weight).reshape(by_group)).reshape(shape),
        lambda g: (g * normal).sum((0, 1)),
        lambda g: g.sum((0, 1)),
    )
