"""Functions that choose, order and compare elements."""

from typing import Any

import numpy as np

from . import _array, _creation, _indexing, _memory, cuda
from ._capture import kernel
from ._counts import note

take = _indexing.take


@kernel
def where(condition: Any, x: Any = None, y: Any = None) -> Any:
    if (x is None) != (y is None):
        raise ValueError("Must provide both 'x' and 'y' or neither.")
    if x is None:
        return condition.nonzero()
    condition = condition.astype("?", copy=False)  # a Python number has no astype
    operands = [_memory.operand(v) for v in (condition, x, y)]
    note("launch")
    return _memory.result(np.where(*operands))


@kernel
def clip(a: Any, min: Any = None, max: Any = None, out: Any = None) -> Any:
    _memory.check_array(a)
    if a.dtype.kind == "b" and (min is None or max is None):
        raise TypeError("Unsupported type <class 'NoneType'>")
    lowest, highest = limits(a.dtype)
    low = lowest if min is None else _memory.operand(min)
    high = highest if max is None else _memory.operand(max)
    note("launch")
    values = np.clip(_memory.read(a), low, high)
    if out is None:
        return _memory.result(values)
    _memory.write(out, values)
    return out


def limits(dtype: np.dtype) -> tuple[Any, Any]:
    if dtype.kind in "iu":
        return np.iinfo(dtype).min, np.iinfo(dtype).max
    return dtype.type(-np.inf), dtype.type(np.inf)


@kernel
def round(a: Any, decimals: int = 0, out: Any = None) -> Any:
    note("launch")
    return _memory.result(_memory.read(a).round(decimals))


@kernel
def nonzero(a: Any) -> tuple:
    note("launch", 4)
    note("copy to host")  # the number of elements
    cuda.get_current_stream().synchronize()
    return tuple(map(_memory.result, _memory.read(a).nonzero()))


def flatnonzero(a: Any) -> Any:
    return a.ravel().nonzero()[0]


@kernel
def repeat(a: Any, repeats: Any, axis: Any = None) -> Any:
    if isinstance(repeats, np.ndarray):
        raise TypeError("'repeats' does not accept numpy.ndarray; convert with cupy.array() first")
    note("launch")
    times = _memory.read(repeats) if isinstance(repeats, _array.ndarray) else repeats
    return _memory.result(_memory.read(a).repeat(times, axis))


def check_kind(kind: Any) -> None:
    if kind not in (None, "stable"):
        raise ValueError("kind can only be None or 'stable'")


@kernel
def sort_in_place(a: Any, axis: int = -1, kind: Any = None) -> None:
    check_kind(kind)
    note("launch", 2)
    _memory.write(a, np.sort(_memory.read(a), axis, "stable"))


def sort(a: Any, axis: Any = -1, kind: Any = None) -> Any:
    new = a.ravel() if axis is None else a.copy("K")
    new.sort(-1 if axis is None else axis, kind)
    return new


@kernel
def argsort(a: Any, axis: Any = -1, kind: Any = None) -> Any:
    check_kind(kind)
    note("launch", 3)
    return _memory.result(_memory.read(a).argsort(axis, "stable"))


@kernel
def partition_in_place(a: Any, kth: Any, axis: int = -1) -> None:
    note("launch", 4)
    _memory.write(a, np.partition(_memory.read(a), kth, axis))


def partition(a: Any, kth: Any, axis: Any = -1) -> Any:
    new = a.ravel() if axis is None else a.copy("K")
    new.partition(kth, -1 if axis is None else axis)
    return new


@kernel
def argpartition(a: Any, kth: Any, axis: Any = -1) -> Any:
    note("launch", 4)
    return _memory.result(_memory.read(a).argpartition(kth, axis))


@kernel
def searchsorted(a: Any, v: Any, side: Any = "left", sorter: Any = None) -> Any:
    if not isinstance(a, _array.ndarray) or not isinstance(v, _array.ndarray):
        raise NotImplementedError("Only int or ndarray are supported for a")
    note("launch")
    return _memory.result(np.searchsorted(_memory.read(a), _memory.read(v), side))


@kernel
def diff(a: Any, n: int = 1, axis: int = -1) -> Any:
    note("launch", n)
    return _memory.result(np.diff(_memory.read(a), n, axis))


@kernel
def packbits(a: Any, axis: Any = None, bitorder: Any = "big") -> Any:
    if axis is not None:
        raise NotImplementedError("axis option is not supported yet")
    if a.dtype.kind not in "biu":
        raise TypeError("Expected an input array of integer or boolean data type")
    note("launch")
    return _memory.result(np.packbits(_memory.read(a).ravel(), bitorder=bitorder))


@kernel
def unpackbits(a: Any, axis: Any = None, bitorder: Any = "big") -> Any:
    if axis is not None:
        raise NotImplementedError("axis option is not supported yet")
    if a.dtype != np.uint8:
        raise TypeError("Expected an input array of unsigned byte data type")
    note("launch")
    return _memory.result(np.unpackbits(_memory.read(a).ravel(), bitorder=bitorder))


def array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> Any:
    return (a1 == a2).all() if a1.shape == a2.shape else _creation.array(False)


@kernel
def allclose(a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Any:
    operands = [x if isinstance(x, _array.ndarray) else _creation.array(x) for x in (a, b)]
    note("launch", 2)
    return _memory.result(np.allclose(*map(_memory.read, operands), rtol, atol, equal_nan))  # pyright: ignore


def iscomplexobj(a: Any) -> bool:
    return a.dtype.kind == "c"


def result_type(*operands: Any) -> np.dtype:
    return np.result_type(*(x._memory if isinstance(x, _array.ndarray) else x for x in operands))
