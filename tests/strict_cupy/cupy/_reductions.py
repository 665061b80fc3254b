"""Reductions, as functions and as methods. A whole array becomes a 0-d array."""

import builtins
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from . import _array, _memory
from ._capture import kernel
from ._counts import note

SEGMENTED = (np.sum, np.prod, np.max, np.min, np.mean)  # by CUB, where there is a GPU
THREADS = 512  # of a block of CuPy's own reductions
MOST_TERMS = 64  # that a thread adds one after the other before ``long chains`` are counted


@kernel
def reduced(function: Callable, x: Any, out: Any, launches: int = 1, **settings: Any) -> Any:
    if not isinstance(x, _array.ndarray):
        raise AttributeError(
            f"{type(x).__name__} is not a cupy.ndarray: cupy.{function.__name__} takes device arrays"
        )
    if settings.get("dtype") is None:
        settings.pop("dtype", None)
    if x.ndim == 0 and isinstance(settings["axis"], int | tuple) and settings["axis"] != ():
        raise np.exceptions.AxisError(0, 0)  # NumPy lets axis 0 and -1 of a 0-d array through
    note("launch", launches)
    if terms_of_a_thread(x, settings["axis"]) > MOST_TERMS:
        note("long chains")
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        values = function(_memory.read(x), **settings)
    if out is None:
        return _memory.result(values, "F" if by_columns(function, x, settings["axis"]) else "C")
    if not isinstance(out, _array.ndarray):
        raise TypeError("Output arguments type must be cupy.ndarray")
    _memory.write(out, values)
    return out


def terms_of_a_thread(x: Any, axis: Any) -> int:
    """How many elements each thread reduces one after the other, where CuPy's own reduction computes ``x``.

    It gives a block of threads up to 32 neighbouring results (``_get_block_specs`` in ``_reduction.pyx``): a
    tall matrix of 32 columns is summed by one block. CUB spreads whole arrays and last axes: 0.
    """
    if axis is None or not x.size:
        return 0
    axes = {i % x.ndim for i in np.atleast_1d(axis).tolist()}
    order = sorted(range(x.ndim), key=lambda i: -abs(x.strides[i]))  # as it lies in memory
    if axes == set(order[x.ndim - len(axes) :]):
        return 0
    results, neighbours = x.size // int(np.prod([x.shape[i] for i in axes])), 1
    for i in reversed([i for i in order if i not in axes]):
        if x.strides[i] != neighbours * x.itemsize:
            break
        neighbours *= x.shape[i]
    together = builtins.max(builtins.min(neighbours, 32), THREADS // (x.size // results))
    blocks = -(-results // (1 << together.bit_length() - 1))
    return x.size // (blocks * THREADS)


def by_columns(function: Callable, x: Any, axis: Any) -> bool:
    """Whether CUB reduces the first axes of an array that lies column by column; its result lies so, too."""
    if function not in SEGMENTED or axis is None or x.flags.c_contiguous or not x.flags.f_contiguous:
        return False
    axes = sorted(i % x.ndim for i in np.atleast_1d(axis))
    return axes == [*range(len(axes))]


def sum(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False) -> Any:
    return reduced(np.sum, a, out, axis=axis, dtype=dtype, keepdims=keepdims)


def prod(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool | None = None) -> Any:
    return reduced(np.prod, a, out, axis=axis, dtype=dtype, keepdims=bool(keepdims))


def mean(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False) -> Any:
    return reduced(np.mean, a, out, axis=axis, dtype=dtype, keepdims=keepdims)


def var(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: int = 0, keepdims: bool = False
) -> Any:
    return reduced(np.var, a, out, 3, axis=axis, dtype=dtype, ddof=ddof, keepdims=keepdims)


def std(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: int = 0, keepdims: bool = False
) -> Any:
    return reduced(np.std, a, out, 4, axis=axis, dtype=dtype, ddof=ddof, keepdims=keepdims)


def max(a: Any, axis: Any = None, out: Any = None, keepdims: bool = False) -> Any:
    return reduced(np.max, a, out, axis=axis, keepdims=keepdims)


def min(a: Any, axis: Any = None, out: Any = None, keepdims: bool = False) -> Any:
    return reduced(np.min, a, out, axis=axis, keepdims=keepdims)


def argmax(a: Any, axis: Any = None, out: Any = None, dtype: Any = None, keepdims: bool = False) -> Any:
    return reduced(np.argmax, a, out, axis=axis, keepdims=keepdims)


def argmin(a: Any, axis: Any = None, out: Any = None, dtype: Any = None, keepdims: bool = False) -> Any:
    return reduced(np.argmin, a, out, axis=axis, keepdims=keepdims)


def all(a: Any, axis: Any = None, out: Any = None, keepdims: bool = False) -> Any:
    return reduced(np.all, a, out, axis=axis, keepdims=keepdims)


def any(a: Any, axis: Any = None, out: Any = None, keepdims: bool = False) -> Any:
    return reduced(np.any, a, out, axis=axis, keepdims=keepdims)


def cumsum(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    return reduced(np.cumsum, a, out, 2, axis=axis, dtype=dtype)


def cumprod(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    return reduced(np.cumprod, a, out, 2, axis=axis, dtype=dtype)


amax, amin = max, min
