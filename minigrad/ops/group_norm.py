"""Normalisation of each sample by itself, over groups of its channels.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``ops/__init__.py``.
"""

from __future__ import annotations

import math

import numpy as np

from ..device import Array, array_module
from ..op import OpResult, Pullback, op, shape_of
from ..tape import once
from .blocks import in_rows
from .geometry import are_integers
from .norm import combined, scaled


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
    shapes = [shape_of(a) for a in (weight, bias) if a is not None]
    if len(shapes) == 1 or any(shape != channels for shape in shapes):
        raise ValueError(
            f"instance_norm of x {shape_of(x)} takes C weights and C biases or neither, got {shapes}"
        )
    if math.prod(shape_of(x)[2:]) == 1:
        raise ValueError(
            f"instance_norm takes channels of several values, got {shape_of(x)}; use group_norm or layer_norm"
        )
    value, to_x, to_weight, to_bias = normalize_groups(x, max(x.shape[1], 1), eps, weight, bias)
    return value, ((to_x, to_weight, to_bias) if shapes else (to_x,))


def normalize_groups(
    x: Array, groups: int, eps: float, weight: Array | None, bias: Array | None
) -> tuple[Array, Pullback, Pullback, Pullback]:
    """The value, and the pullbacks to x, weight and bias; images are channels-last in memory.

    Their columns are taken as wholes, (N, rows, columns C): NumPy is slow along short axes.
    """
    xp, shape, channels = array_module(x), x.shape, x.shape[1]
    columns = shape[-1] if x.ndim > 2 else 1
    n, rows = len(x), math.prod(shape[2:-1])
    count = max(rows * columns * channels // groups, 1)
    last = (0, *range(2, x.ndim), 1)
    back = (0, x.ndim - 1, *range(1, x.ndim - 1))

    def as_lines(a: Array) -> Array:
        return xp.ascontiguousarray(a.transpose(last)).reshape(n, rows, columns * channels)

    def as_images(a: Array) -> Array:
        return a.reshape([shape[i] for i in last]).transpose(back)

    def sums(a: Array, b: Array | None = None) -> Array:
        """Of each channel of a (N, C), or of a * b, from lines; on the host as products, which are faster."""
        if xp is not np:
            by_column = (a if b is None else a * b).sum(axis=1)
        elif b is None:
            by_column = (np.ones((1, rows), a.dtype) @ a)[:, 0]
        else:
            by_column = np.einsum("nrc,nrc->nc", a, b)
        return by_column.reshape(n, columns, channels).sum(axis=1)

    def mean(a: Array) -> Array:
        """The mean of each group for each of its channels (N, C), from their sums (N, C)."""
        by_group = a.reshape(n, groups, channels // groups).sum(axis=2) / count
        return xp.repeat(by_group, channels // groups, axis=1)

    def line(a: Array) -> Array:
        """Numbers of channels (N, C) for each column, to go with lines."""
        return xp.tile(a, columns)[:, None]

    a = as_lines(x if x.dtype.kind == "f" else x.astype(float))
    centred = in_rows(xp.subtract, a, line(mean(sums(a))))
    scale = 1 / xp.sqrt(mean(sums(centred, centred)) + eps)
    factor = scale if weight is None else scale * weight
    if bias is None:
        y = in_rows(xp.multiply, centred, line(factor))
    else:
        y = in_rows(scaled, centred, line(factor), line(bias[None]))

    def both_sums(g: Array) -> tuple[Array, Array, Array]:
        gs = as_lines(g)
        return gs, sums(gs), sums(gs, centred) * scale

    shared = once(both_sums)

    def to_x(g: Array) -> Array:
        gs, total, along = shared(g)
        if weight is not None:
            total, along = total * weight, along * weight
        shift, slope = scale * mean(total), scale * scale * mean(along)
        return as_images(in_rows(combined, gs, centred, *map(line, (factor, shift, slope))))

    return as_images(y), to_x, (lambda g: shared(g)[2].sum(axis=0)), (lambda g: shared(g)[1].sum(axis=0))
