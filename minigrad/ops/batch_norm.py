"""Normalisation of each channel over the batch.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``ops/__init__.py``.

>>> from minigrad import ops
>>> ops.batch_norm([[1.0], [3.0]], [1.0], [0.0]).data.round(3).tolist()
[[-1.0], [1.0]]
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

import numpy as np

from ..memory_order import channels_last
from ..op import Array, OpResult, array_module, faster, floating, layer_in_single, once, op, shape_of
from ..product import product
from ..sums import column_sums
from .selection import positive_part, where_positive

Observe = Callable[[Array, Array, float], None]
Gather = Callable[[Array], Sequence[Array]]


@op
@layer_in_single
@faster
def batch_norm(
    x: Array,
    weight: Array,
    bias: Array,
    *,
    statistics: tuple[Array, Array] | None = None,
    eps: float = 1e-5,
    observe: Observe | None = None,
    gather: Gather | None = None,
    relu: bool = False,
) -> OpResult:
    """(x - mean) / sqrt(var + eps) * weight + bias per channel, for x (N, C), (N, C, L) or (N, C, H, W).

    Mean and variance are the batch's (Ioffe and Szegedy 2015) and passed to ``observe(mean, var, count)``, or
    the constants ``statistics = (mean, var)``. Where other ranks hold the rest of the batch,
    ``gather(array)`` returns all ranks' arrays, one list everywhere: it is called once forward, with 2 C + 1
    numbers, and once by the gradient of x, with 2 C; the gradients of weight and bias stay this rank's sums.
    With ``relu`` the value is max(y, 0), bit for bit as by ``ops.relu``. Raises ValueError where C differs;
    warns where a channel has one value, which is its mean.
    """
    shape = shape_of(x)
    if not 2 <= len(shape) <= 4 or not shape_of(weight) == shape_of(bias) == shape[1:2]:
        raise ValueError(
            f"batch_norm takes x (N, C), (N, C, L) or (N, C, H, W), C weights and C biases, got {shape}, "
            f"{shape_of(weight)} and {shape_of(bias)}"
        )
    pixels, images = channels_last(x, x.size // max(shape[1], 1))
    xp, x = array_module(x), pixels(floating(x, weight))
    n: float = len(x)
    if statistics is None:
        mean, squares = moments(x)
        if gather is not None:
            n, mean, squares = merged(gather(xp.concatenate([xp.full(1, n, x.dtype), mean, squares])))
        if n == 1:
            warnings.warn(
                "batch_norm of one value per channel gives its bias, and nothing before it learns; train "
                "with at least two samples at a time",
                stacklevel=2,
            )
        var = squares / max(n, 1)
        if observe is not None:
            observe(mean, var, n)
    else:
        mean, var = (floating(a, x) for a in statistics)
    scale = 1 / xp.sqrt(var + eps)
    factor = scale * weight
    y = normalized(x, mean, factor, bias, relu)
    after_relu, fixed = y if relu else None, statistics is not None

    @once
    def sums(g: Array) -> tuple[Array, Array, Array]:
        d = pixels(g)
        total, along = gradient_sums(d, after_relu, x, mean)
        return total, scale * along, d

    def to_x(g: Array) -> Array:
        if fixed:
            d = pixels(g)
            return images((d if after_relu is None else where_positive(d, after_relu)) * factor)
        total, along, d = sums(g)
        if gather is not None:
            total, along = xp.sum(xp.stack(gather(xp.stack([total, along]))), axis=0)
        slope, shift = factor * scale * along / max(n, 1), factor * total / max(n, 1)
        return images(gradient(d, after_relu, x, mean, factor, slope, shift))

    return images(y), (to_x, lambda g: sums(g)[1].copy(), lambda g: sums(g)[0].copy())


def merged(parts: Sequence[Array]) -> tuple[float, Array, Array]:
    """Count, mean and summed squared deviations of a whole, from its parts' arrays [count, *means, *sums].

    The squares within the parts and the squares of the parts' means add up (Chan, Golub and LeVeque 1983):
    exact for any counts, 0 too, and without the cancellation of E[x^2] - E[x]^2.
    """
    stacked = array_module(parts[0]).stack(parts)
    channels = stacked.shape[1] // 2
    counts, means, squares = stacked[:, :1], stacked[:, 1 : channels + 1], stacked[:, channels + 1 :]
    n = float(counts.sum())
    mean = (counts * means).sum(axis=0) / max(n, 1)
    return n, mean, (squares + counts * (means - mean) ** 2).sum(axis=0)


@faster
def move(running: tuple[Array, Array], mean: Array, var: Array, momentum: float, unbias: float = 1.0) -> None:
    """Move a running mean and variance, in place, towards those of a batch, the variance times ``unbias``."""
    for of_all, of_batch in zip(running, (mean, var * unbias), strict=True):
        of_all += momentum * (of_batch - of_all)


@faster
def moments(x: Array) -> tuple[Array, Array]:
    """The mean of each channel of x (N, C), and the sum of the squared deviations from it."""
    mean = channel_sums(x) / max(len(x), 1)
    return mean, channel_sums((x - mean) ** 2)


@faster
def normalized(x: Array, mean: Array, factor: Array, bias: Array, relu: bool) -> Array:
    """(x - mean) factor + bias, or with ``relu`` what is positive of it."""
    y = (x - mean) * factor + bias
    return positive_part(y) if relu else y


@faster
def gradient_sums(g: Array, after_relu: Array | None, x: Array, mean: Array) -> tuple[Array, Array]:
    """The sums of g over each channel, and of its products with the deviations, g as before the ReLU."""
    d = g if after_relu is None else where_positive(g, after_relu)
    return channel_sums(d), channel_sums(d * (x - mean))


@faster
def gradient(
    g: Array, after_relu: Array | None, x: Array, mean: Array, factor: Array, slope: Array, shift: Array
) -> Array:
    """The gradient through ReLU and scale, minus the terms by which x moves its own mean and variance."""
    d = g if after_relu is None else where_positive(g, after_relu)
    return d * factor - (x - mean) * slope - shift


def channel_sums(x: Array) -> Array:
    """The sums of the columns of (N, C); on a GPU as a product, which a stream that is captured can take."""
    xp = array_module(x)
    return column_sums(x) if xp is np else product(xp.ones(x.shape[0], x.dtype), x)
