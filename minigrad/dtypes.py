"""Arrays of the dtype that an op computes in.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``op.py``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .device import Array


def floating(x: Array, like: Any = None) -> Array:
    """x in the dtype of ``like``, where that has floats; else x, where it has integers as float64."""
    if like is not None and is_floating(like):
        return x.astype(like.dtype, copy=False) if hasattr(x, "dtype") else x
    return x.astype(float) if hasattr(x, "dtype") and x.dtype.kind != "f" else x


def alike(x: Array, y: Array) -> tuple[Array, Array]:
    """x and y as floats of one dtype: that of x, or of y where x has integers, or float64 where both have."""
    if type(x) is type(y) is np.ndarray and x.dtype.char == y.dtype.char in "fd":
        return x, y
    x = floating(x, None if is_floating(x) else y)
    return x, floating(y, x)


def in_dtype_of(weight: Array, x: Array) -> Array:
    """x in the dtype of a layer's weight: float64 samples do not widen what a float32 model computes.

    Where the weight has integers x stays as it is.
    """
    return floating(x, weight) if is_floating(weight) else x


def is_floating(x: Any) -> bool:
    """Whether x is an array of floats; a Python number is none."""
    return hasattr(x, "dtype") and x.dtype.kind == "f"
