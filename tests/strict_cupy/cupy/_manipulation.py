"""Functions that join, split and view arrays."""

from typing import Any

import numpy as np

from . import _array, _creation, _memory
from ._capture import kernel
from ._counts import note


@kernel
def concatenate(
    tup: Any, axis: Any = 0, out: Any = None, *, dtype: Any = None, casting: Any = "same_kind"
) -> Any:
    arrays = list(tup)
    if not arrays:
        raise ValueError("Cannot concatenate from empty tuple")
    if not all(isinstance(x, _array.ndarray) for x in arrays):
        raise TypeError("Only cupy arrays can be concatenated")
    if axis is None:
        arrays, axis = [x.ravel() for x in arrays], 0
    if any(x.ndim == 0 for x in arrays):
        raise TypeError("zero-dimensional arrays cannot be concatenated")
    if len(arrays) > 8:
        note("launch")
        note("copy to device", 2)  # the addresses and the lengths
    else:
        note("launch", len(arrays))
    settings = {} if dtype is None else {"dtype": dtype, "casting": casting}
    values = np.concatenate([_memory.read(x) for x in arrays], axis, **settings)
    if out is None:
        return _memory.result(values)
    _memory.write(out, values)
    return out


def stack(tup: Any, axis: int = 0, out: Any = None, *, dtype: Any = None, casting: Any = "same_kind") -> Any:
    return concatenate([expand_dims(x, axis) for x in tup], axis, out, dtype=dtype, casting=casting)


def split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list:
    _memory.check_array(ary)
    parts = np.split(ary._memory, indices_or_sections, axis)
    return [ary] if len(parts) == 1 else [_memory.view(part, ary) for part in parts]


@kernel
def tile(A: Any, reps: Any) -> Any:
    A = A if isinstance(A, _array.ndarray) else _creation.array(A)
    note("launch")
    new = _memory.result(np.tile(_memory.read(A), reps))
    return new if np.prod(reps) == 1 or not A.size else _memory.view(new._memory, new)  # a reshaped one


def broadcast_to(array: Any, shape: Any) -> Any:
    x = array if isinstance(array, _array.ndarray) else _creation.array(array)
    wide = np.broadcast_to(x._memory, shape)
    return _memory.view(
        np.lib.stride_tricks.as_strided(x._memory, wide.shape, wide.strides), x
    )  # writable in CuPy


def expand_dims(a: Any, axis: Any) -> Any:
    _memory.check_array(a)
    return _memory.view(np.expand_dims(a._memory, axis), a)


def moveaxis(a: Any, source: Any, destination: Any) -> Any:
    return _memory.view(np.moveaxis(a._memory, source, destination), a)


def may_share_memory(a: Any, b: Any, max_work: Any = None) -> bool:
    _memory.check_array(a, b)
    return np.may_share_memory(a._memory, b._memory)


def shares_memory(a: Any, b: Any, max_work: Any = None) -> bool:
    _memory.check_array(a, b)
    note("launch", 6)
    note("synchronize")
    if a.ndim == 0 or b.ndim == 0:  # by value, so at one address in the kernel that asks for it
        return a.ndim == b.ndim
    return np.shares_memory(a._memory, b._memory)


def ravel(a: Any, order: Any = "C") -> Any:
    return a.ravel(order)


def reshape(a: Any, newshape: Any, order: Any = "C") -> Any:
    return a.reshape(newshape, order=order)


def transpose(a: Any, axes: Any = None) -> Any:
    return a.transpose(axes)


def swapaxes(a: Any, axis1: int, axis2: int) -> Any:
    return a.swapaxes(axis1, axis2)


def squeeze(a: Any, axis: Any = None) -> Any:
    return a.squeeze(axis)


def diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    return a.diagonal(offset, axis1, axis2)


def shape(a: Any) -> tuple[int, ...]:
    return a.shape if isinstance(a, _array.ndarray) else np.shape(a)


def ndim(a: Any) -> int:
    return a.ndim if isinstance(a, _array.ndarray) else np.ndim(a)


def size(a: Any, axis: Any = None) -> int:
    return a.size if axis is None else a.shape[axis]
