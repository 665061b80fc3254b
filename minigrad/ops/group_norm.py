"""Normalisation of each sample by itself, over groups of its channels.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``ops/__init__.py``.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np

from ..device import Array, array_module
from ..op import OpResult, Pullback, op, shape_of
from ..sums import CHAIN, halved, ones, row_sums
from .blocks import in_rows
from .geometry import are_integers
from .norm import repeated


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

    Samples are taken as lines of several pixels, (N, R, pixels C): NumPy is slow along short axes.
    """
    xp, shape, channels = array_module(x), x.shape, x.shape[1]
    n, pixels = len(x), math.prod(shape[2:])
    together = pixels_together(pixels, channels) if xp is np else 1
    count = max(pixels * channels // groups, 1)
    to_lines = (0, *range(2, x.ndim), 1)
    to_images = (0, x.ndim - 1, *range(1, x.ndim - 1))

    def as_lines(a: Array) -> Array:
        return xp.ascontiguousarray(a.transpose(to_lines)).reshape(n, pixels // together, together * channels)

    def as_images(a: Array) -> Array:
        return a.reshape([shape[i] for i in to_lines]).transpose(to_images)

    def line(a: Array) -> Array:
        """Numbers of channels (N, C), to go with lines."""
        return repeated(a, together)[:, None]

    def sums(x: Array, y: Array | None = None) -> Array:
        """The sums of channels (N, C), of x or of x * y."""
        total = line_sums(x) if y is None else line_dots(x, y)
        if together > 1:
            total = total.reshape(len(x), together, channels)
            total = line_sums(total) if together <= CHAIN else halved(total.swapaxes(0, 1))
        return total

    def mean(a: Array) -> Array:
        """The mean of each group for each of its channels (N, C), from their sums (N, C)."""
        by_channel = a.reshape(len(a) * groups, channels // groups)
        by_group = row_sums(by_channel) if xp is np else by_channel.sum(axis=1)
        return xp.repeat(by_group / count, channels // groups).reshape(a.shape)

    def normalize(x: Array, centred: Array, scale: Array, y: Array) -> None:
        xp.subtract(x, line(mean(sums(x))), out=centred)
        scale[...] = 1 / xp.sqrt(mean(sums(centred, centred)) + eps)
        xp.multiply(centred, line(scale if weight is None else scale * weight), out=y)
        if bias is not None:
            y += line(bias[None])

    x = as_lines(x if x.dtype.kind == "f" else x.astype(float))
    centred, scale = xp.empty_like(x), xp.empty((n, channels), x.dtype)
    dtype = x.dtype if weight is None else xp.result_type(x, weight)
    y = xp.empty(x.shape, dtype)
    in_rows(normalize, x, centred, scale, y)

    def write_sums(g: Array, centred: Array, scale: Array, total: Array, along: Array) -> None:
        """Those of channels of g, and of g times the normalized x."""
        total[...] = sums(g)
        along[...] = sums(g, centred) * scale

    def write_gradient(g: Array, centred: Array, scale: Array, total: Array, along: Array, d: Array) -> None:
        write_sums(g, centred, scale, total, along)
        factor = scale
        if weight is not None:
            total, along, factor = total * weight, along * weight, scale * weight
        xp.multiply(centred, line(scale * scale * mean(along)), out=d)
        d += line(scale * mean(total))
        xp.subtract(g * line(factor), d, out=d)

    last: list[Array] = []  # g, and its sums

    def two_sums() -> tuple[Array, Array]:
        return xp.empty((n, channels), dtype), xp.empty((n, channels), dtype)

    def sums_of(g: Array) -> tuple[Array, Array]:
        if not last or last[0] is not g:
            last[:] = g, *two_sums()
            in_rows(write_sums, as_lines(g), centred, scale, *last[1:])
        return last[1], last[2]

    def to_x(g: Array) -> Array:
        both, d = two_sums(), xp.empty(centred.shape, dtype)
        in_rows(write_gradient, as_lines(g), centred, scale, *both, d)
        last[:] = g, *both
        return as_images(d)

    return as_images(y), to_x, (lambda g: sums_of(g)[1].sum(axis=0)), (lambda g: sums_of(g)[0].sum(axis=0))


def line_sums(x: Array) -> Array:
    """The sums of (N, R, C) over R, of which the host has at most ``CHAIN``."""
    return (ones(x.shape[1], x.dtype)[None] @ x)[:, 0] if array_module(x) is np else x.sum(axis=1)


def line_dots(x: Array, y: Array) -> Array:
    """The same of x * y."""
    return np.einsum("nrc,nrc->nc", x, y) if array_module(x) is np else line_sums(x * y)


@cache
def pixels_together(pixels: int, channels: int) -> int:
    """How many pixels are taken as a line: as few as make at most ``CHAIN`` lines, of 2,048 elements each."""
    for together in range(1, pixels):
        if pixels % together == 0 and pixels <= CHAIN * together and together * channels >= 2048:
            return together
    return max(pixels, 1)
