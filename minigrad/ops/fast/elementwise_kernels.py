"""ReLU and the logistic function on a GPU as one kernel each way; ``ops/elementwise`` has the readable forms.

Lecture section: GPU against CPU. Lesson: 04_gpu.
"""

from __future__ import annotations

import numpy as np

from ...device import Array, array_module, elementwise_kernel, on_gpu


def can_take(*arrays: Array) -> bool:
    """Whether all are on a GPU and of one dtype, float32 or float64."""
    first, *others = arrays
    return (
        on_gpu(first)
        and first.dtype in (np.float32, np.float64)
        and all(on_gpu(x) and x.dtype == first.dtype for x in others)
    )


def where_positive(g: Array, y: Array) -> Array:
    """The gradient of y = max(x, 0): g where y is not 0."""
    d = array_module(g).empty(g.shape, g.dtype)
    elementwise_kernel("T g, T y, T zero", "T d", "d = choose(y != zero, g, zero)", "relu_gradient")(
        g, y, 0, d
    )
    return d


def logistic(x: Array) -> Array:
    y = array_module(x).empty(x.shape, x.dtype)
    elementwise_kernel("T x, T one", "T y", "y = one / (one + exp(-x))", "logistic")(x, 1, y)
    return y


def logistic_gradient(g: Array, y: Array) -> Array:
    """g times the slope y (1 - y) of y = logistic(x)."""
    d = array_module(g).empty(g.shape, g.dtype)
    elementwise_kernel("T g, T y, T one", "T d", "d = (one - y) * y * g", "logistic_gradient")(g, y, 1, d)
    return d
