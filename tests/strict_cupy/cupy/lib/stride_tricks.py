"""Views by strides. In CuPy they have no base."""

import math
from typing import Any

import numpy as np

from .. import _memory

byte_bounds = getattr(np, "byte_bounds", None) or np.lib.array_utils.byte_bounds  # NumPy 1 and 2


def as_strided(x: Any, shape: Any = None, strides: Any = None) -> Any:
    shape = x.shape if shape is None else tuple(shape)
    strides = x.strides if strides is None else tuple(strides)
    if math.prod(shape):
        reaches = [(n - 1) * stride for n, stride in zip(shape, strides, strict=True)]
        start = x._memory.ctypes.data
        low = start + sum(min(0, reach) for reach in reaches)
        high = start + sum(max(0, reach) for reach in reaches) + x.itemsize
        first, last = byte_bounds((x if x.base is None else x.base)._memory)
        if low < first or high > last:
            raise MemoryError(
                "as_strided reaches outside of the array's memory: CuPy would read or write there"
            )
    return without_base(np.lib.stride_tricks.as_strided(x._memory, shape, strides), x)


def sliding_window_view(
    x: Any, window_shape: Any, axis: Any = None, *, subok: bool = False, writeable: bool = False
):
    return without_base(np.lib.stride_tricks.sliding_window_view(x._memory, window_shape, axis), x)


def without_base(memory: np.ndarray, x: Any) -> Any:
    new = _memory.view(memory, x)
    new.base = None
    return new
