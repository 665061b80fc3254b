"""Indices: views, gathers and scatters. Integers out of range wrap around, as in CuPy."""

from typing import Any

import numpy as np

from . import _array, _counts, _memory
from ._capture import kernel


class Index:
    """An index as NumPy takes it, whether it gathers, and how many kernels prepare it."""

    def __init__(self, index: Any) -> None:
        parts = list(index) if isinstance(index, tuple) else [index]
        masks, self.parts = 0, []
        for part in parts:
            if isinstance(part, slice):
                part = slice(
                    *(None if x is None else x.__index__() for x in (part.start, part.stop, part.step))
                )
            elif part is not None and part is not Ellipsis:
                part = index_of(part, index)
                masks += isinstance(part, np.ndarray) and part.dtype.kind == "b"
            self.parts.append(part)
        arrays = sum(isinstance(part, np.ndarray) for part in self.parts)
        if masks:  # the number of True is read
            _counts.note("copy to host")
            _counts.note("synchronize")
        self.gathers = arrays > 0
        self.kernels = 3 * masks + (arrays + 1 if arrays > 1 else 0)

    def view(self, memory: np.ndarray) -> np.ndarray:
        """The part of ``memory`` that a basic index names, where NumPy would give a number a 0-d array."""
        full = self.parts if any(part is Ellipsis for part in self.parts) else [*self.parts, ...]
        return memory[tuple(full)]

    def wrapped(self, x: np.ndarray) -> tuple:
        """The index for ``x`` with integers in range."""

        def axes(part: Any) -> int:
            if part is None or part is Ellipsis:
                return 0
            return part.ndim if isinstance(part, np.ndarray) and part.dtype.kind == "b" else 1

        axis, rest, parts = 0, x.ndim - sum(map(axes, self.parts)), []
        for part in self.parts:
            if isinstance(part, np.ndarray) and part.dtype.kind in "iu" and part.size:
                length = x.shape[axis]
                if length and (part.max() >= length or part.min() < -length):
                    _counts.remark("an index out of range wraps around in CuPy: no IndexError")
                    part = part % length
            axis += rest if part is Ellipsis else axes(part)
            parts.append(part)
        return tuple(parts)


def index_of(part: Any, index: Any) -> Any:
    """One integer, or one array of integers or bools; it is uploaded if it is on the host."""
    if isinstance(part, _array.ndarray):
        part = _memory.read(part)
    elif np.isscalar(part) and not isinstance(part, bool | np.bool_):
        if not isinstance(part, int | np.integer):
            raise IndexError(
                "only integers, slices, ellipsis, None and integer or boolean arrays are valid indices"
            )
        return int(part)
    else:
        part = host_array(part)
        if part.size == 0 and not isinstance(index, np.ndarray):
            part = part.astype(np.int32)
        _counts.note("copy to device", nbytes=part.nbytes)
        _counts.remark("a host array or list as an index: copied to the device")
    if part.dtype.kind not in "biu":
        raise IndexError(
            f"arrays used as indices must be of integer or boolean type. (actual: {part.dtype.type})"
        )
    return part


def host_array(x: Any) -> np.ndarray:
    if isinstance(x, list | tuple) and any(isinstance(i, _array.ndarray) for i in x):
        return np.array([_memory.read(i) for i in x])
    return np.asarray(x)


@kernel
def getitem(x: "_array.ndarray", index: Any) -> "_array.ndarray":
    _memory.check_device(x)
    place = Index(index)
    if not place.gathers:
        return _memory.view(place.view(x._memory), x)
    _counts.note("launch", place.kernels + 1)
    values = _memory.read(x)
    return _memory.result(values[place.wrapped(values)])


@kernel
def setitem(x: "_array.ndarray", index: Any, value: Any) -> None:
    _memory.check_device(x)
    place = Index(index)
    target = None if place.gathers else place.view(x._memory)
    if isinstance(value, _array.ndarray):
        if target is not None and is_same(value._memory, target):
            return  # ``x[...] += y`` ends so: nothing is launched
        value = _memory.read(value)
    elif hasattr(value, "__cuda_array_interface__"):
        raise NotImplementedError("foreign device arrays")
    elif target is None and isinstance(value, np.ndarray) and value.ndim:
        _counts.note("copy to device", nbytes=value.nbytes)
        _counts.remark("a host array was assigned to a[indices]: CuPy copies it to the device")
    elif target is not None and np.ndim(value):
        raise ValueError("non-scalar numpy.ndarray cannot be used for fill")
    value = np.asarray(value, dtype=x.dtype)
    _counts.note("launch", place.kernels + 1)
    if target is None:
        values = _memory.read(x).copy(order="K")
        indices = place.wrapped(values)
        values[indices] = value
        _memory.write(x, values)
    else:
        while value.ndim > target.ndim and value.shape[0] == 1:
            value = value[0]
        _memory.write_memory(target, value)


def is_same(x: np.ndarray, y: np.ndarray) -> bool:
    return (x.ctypes.data, x.shape, x.strides) == (y.ctypes.data, y.shape, y.strides)


@kernel
def take(x: "_array.ndarray", indices: Any, axis: int | None = None, out: Any = None) -> "_array.ndarray":
    where = _memory.read(indices) if isinstance(indices, _array.ndarray) else np.asarray(indices, int)
    if not isinstance(indices, _array.ndarray):
        _counts.note("copy to device", nbytes=where.nbytes)
    length = x.size if axis is None else x.shape[axis]
    _counts.note("launch")
    return _memory.result(_memory.read(x).take(where % length if length else where, axis))
