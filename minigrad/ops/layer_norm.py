"""Normalisation of each sample over its last axes.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``ops/__init__.py``.

>>> from minigrad import ops
>>> ops.layer_norm([[1.0, 3.0]], [1.0, 1.0], [0.0, 0.0]).data.round(3).tolist()
[[-1.0, 1.0]]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache

import numpy as np

from ..op import Array, OpResult, Pullback, array_module, faster, floating, layer_in_single, op, shape_of

Mean = Callable[[Array], Array]


@op
@layer_in_single
@faster
def layer_norm(x: Array, weight: Array, bias: Array, *, eps: float = 1e-5) -> OpResult:
    """Each sample's last axes with mean 0 and variance 1, times weight, plus bias (Ba et al. 2016).

    The shape of ``weight`` determines which trailing axes of x are normalized; ValueError where it differs.
    """
    check_last_axes("layer_norm", x, weight, bias)
    x = floating(x, weight)
    normal, to_x = standardized(x, mean_over(range(-weight.ndim, 0), weight.size), eps)
    return normal * weight + bias, (lambda g: to_x(g * weight), lambda g: g * normal, lambda g: g)


@op
def rms_norm(x: Array, weight: Array, *, eps: float | None = None) -> OpResult:
    """x / sqrt(mean of x * x + eps) * weight, the mean over the axes of weight, which are x's last ones.

    No mean is subtracted (Zhang and Sennrich 2019). ``eps`` is by default that of x's dtype, as in PyTorch.
    """
    check_last_axes("rms_norm", x, weight)
    x = floating(x, weight)
    return rms_norm_in_single(x, weight, eps=np.finfo(x.dtype).eps if eps is None else eps)


@layer_in_single
def rms_norm_in_single(x: Array, weight: Array, *, eps: float) -> OpResult:
    mean = mean_over(range(-weight.ndim, 0), weight.size)
    normal, to_x = standardized(x, mean, float(eps), centred=False)
    return normal * weight, (lambda g: to_x(g * weight), lambda g: g * normal)


def standardized(x: Array, mean: Mean, eps: float, *, centred: bool = True) -> tuple[Array, Pullback]:
    """(x - mean) / sqrt(variance + eps), and its pullback, which writes into what it gets.

    Not ``centred`` it is x / sqrt(mean of x * x + eps).
    """
    x = x - mean(x) if centred else x
    scale = 1 / array_module(x).sqrt(mean(x * x) + eps)
    normal = x * scale

    def to_x(g: Array) -> Array:
        g -= normal * mean(g * normal)
        g *= scale
        if centred:
            g -= mean(g)
        return g

    return normal, to_x


@lru_cache  # a network repeats a few shapes
def mean_over(axes: Iterable[int], count: int) -> Mean:
    """The mean over ``axes``, which are kept as 1, of ``count`` elements."""
    axes, divisor = tuple(axes), max(count, 1)
    return lambda x: x.sum(axis=axes, keepdims=True) / divisor


def check_last_axes(op: str, x: Array, *parameters: Array) -> None:
    """Raise ValueError unless all parameters have the shape of x's last axes."""
    shape, *shapes = map(shape_of, (x, *parameters))
    n = len(shapes[0])
    if not n or shapes != [shape[-n:]] * len(shapes):
        raise ValueError(
            f"{op} of x {shape} needs parameters that all have the shape of its last axes, such as "
            f"{shape[-max(n, 1) :] or '(features,)'}, got {', '.join(map(str, shapes))}"
        )
