"""Normalisation of each sample over its last axes.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``ops/__init__.py``.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ..device import Array, array_module
from ..dtypes import floating
from ..faster import faster
from ..half import half_in_single
from ..op import op
from ..pullback import OpResult, Pullback, shape_of

Mean = Callable[[Array], Array]


@op
@half_in_single
@faster
def layer_norm(x: Array, weight: Array, bias: Array, *, eps: float = 1e-5) -> OpResult:
    """Each sample's last axes with mean 0 and variance 1, times weight, plus bias (Ba et al. 2016).

    The shape of ``weight`` determines which trailing axes of x are normalized; ValueError where it differs.
    """
    axes = last_axes("layer_norm", x, weight, bias)
    x = floating(x, weight)
    normal, to_x = standardized(x, mean_over(axes, x.shape), eps)
    return normal * weight + bias, (lambda g: to_x(g * weight), lambda g: g * normal, lambda g: g)


@op
def rms_norm(x: Array, weight: Array, *, eps: float | None = None) -> OpResult:
    """x / sqrt(mean of x * x + eps) * weight, the mean over the axes of weight, which are x's last ones.

    No mean is subtracted (Zhang and Sennrich 2019). ``eps`` is by default that of x's dtype, as in PyTorch.
    """
    axes = last_axes("rms_norm", x, weight)
    x = floating(x, weight)
    return rms_norm_in_single(x, weight, axes=axes, eps=np.finfo(x.dtype).eps if eps is None else eps)


@half_in_single
def rms_norm_in_single(x: Array, weight: Array, *, axes: tuple[int, ...], eps: float) -> OpResult:
    normal, to_x = standardized(x, mean_over(axes, x.shape), float(eps), centred=False)
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


def mean_over(axes: tuple[int, ...], shape: tuple[int, ...]) -> Mean:
    """The mean over ``axes``, which are kept as 1, of arrays of this shape."""
    count = max(math.prod(shape[axis] for axis in axes), 1)
    return lambda x: x.sum(axis=axes, keepdims=True) / count


def last_axes(op: str, x: Array, *parameters: Array) -> tuple[int, ...]:
    """The last axes of x, whose shape all parameters have; ValueError where one has another."""
    shapes = [shape_of(parameter) for parameter in parameters]
    n = len(shapes[0])
    if not n or any(shape != shape_of(x)[-n:] for shape in shapes):
        raise ValueError(
            f"{op} of x {shape_of(x)} needs parameters that all have the shape of its last axes, such as "
            f"{shape_of(x)[-max(n, 1) :] or '(features,)'}, got {', '.join(map(str, shapes))}"
        )
    return tuple(range(-n, 0))
