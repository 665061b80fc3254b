"""The device array. Its memory is a host array that nobody outside of this package may have."""

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from . import (
    _creation,
    _indexing,
    _late,
    _memory,
    _products,
    _protocols,
    _reductions,
    _selection,
    _ufuncs,
    cuda,
)
from ._capture import kernel
from ._counts import note


class Flags:
    def __init__(self, memory: np.ndarray, owndata: bool) -> None:
        self.c_contiguous, self.f_contiguous = memory.flags.c_contiguous, memory.flags.f_contiguous
        self.owndata = owndata
        self.fnc, self.forc = memory.flags.fnc, memory.flags.forc

    def __getitem__(self, name: str) -> bool:
        names = {
            "C_CONTIGUOUS": self.c_contiguous,
            "F_CONTIGUOUS": self.f_contiguous,
            "OWNDATA": self.owndata,
        }
        return names[name]


def _operator(function: Callable) -> Callable:
    """``x + y`` where x is a device array; NumPy's ufunc decides about what is none, as in CuPy."""

    def forward(x: Any, y: Any) -> Any:
        if isinstance(y, ndarray):
            return getattr(_ufuncs, function.__name__)(x, y)
        return NotImplemented if _defers_to(y) else function(x, y)

    return forward


def _reflected(function: Callable) -> Callable:
    return lambda y, x: function(x, y)


def _in_place(function: Callable) -> Callable:
    return lambda x, y: getattr(_ufuncs, function.__name__)(x, y, out=x)


def _comparison(function: Callable) -> Callable:
    def compare(x: Any, y: Any) -> Any:
        if isinstance(y, ndarray):
            return getattr(_ufuncs, function.__name__)(x, y)
        if _defers_to(y):
            return NotImplemented
        if isinstance(y, np.ndarray) and y.ndim == 0:
            y = y.item()
        if function in (np.equal, np.not_equal) and (y is None or type(y).__eq__ is object.__eq__):
            return _creation.full(x.shape, function is np.not_equal, bool)
        return function(x, y)

    return compare


def _defers_to(y: Any) -> bool:
    """Whether the operator is left to ``y`` (CuPy's _should_use_rop)."""
    if hasattr(y, "__array_ufunc__"):
        return y.__array_ufunc__ is None
    return getattr(y, "__array_priority__", 0) > ndarray.__array_priority__


class ndarray:
    """An array on a device: its memory, the array of which it is a view, and the device's number."""

    __slots__ = ("_memory", "base", "_device", "__weakref__")
    __array_priority__ = 100
    __hash__ = None  # pyright: ignore[reportAssignmentType]
    __module__ = "cupy"

    _memory: np.ndarray
    base: "ndarray | None"
    _device: int

    def __new__(
        cls, shape: Any, dtype: Any = float, memptr: Any = None, strides: Any = None, order: str = "C"
    ):
        if memptr is not None or strides is not None:
            raise NotImplementedError("the double makes no arrays from addresses")
        return _memory.empty(shape, dtype, order or "C")

    # Attributes

    strides = property(lambda self: self._memory.strides)
    ndim = property(lambda self: self._memory.ndim)
    size = property(lambda self: self._memory.size)
    dtype = property(lambda self: self._memory.dtype)
    itemsize = property(lambda self: self._memory.itemsize)
    nbytes = property(lambda self: self._memory.nbytes)
    data = property(lambda self: cuda.MemoryPointer(self._memory, self._device))
    device = property(lambda self: cuda.Device(self._device))
    flags = property(lambda self: Flags(self._memory, self.base is None))
    T = property(lambda self: self if self.ndim < 2 else _memory.view(self._memory.T, self))
    mT = property(lambda self: self.swapaxes(-1, -2))
    real = property(lambda self: self if self.dtype.kind != "c" else _memory.view(self._memory.real, self))

    @property
    def shape(self) -> tuple[int, ...]:
        return self._memory.shape

    @shape.setter
    def shape(self, shape: Any) -> None:
        memory = self._memory.view()
        memory.shape = shape  # refused where it would copy
        self._memory = memory

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """The address, for whoever reads and writes the memory himself: without a look at the streams."""
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "descr": self.dtype.descr,
            "stream": 1,
            "version": 3,
            "strides": None if self._memory.flags.c_contiguous else self.strides,
            "data": (self._memory.ctypes.data if self.size else 0, False),
        }

    # To the host

    def get(self, stream: Any = None, order: str = "C", out: Any = None, blocking: bool = True) -> np.ndarray:
        if out is None:
            if self.size == 0:
                return np.empty(self.shape, self.dtype)
            order = order.upper()
            if order == "A":
                order = "F" if self._memory.flags.f_contiguous else "C"
            if order not in "CF":
                raise ValueError(f"unsupported order: {order}")
            out = np.full(self.shape, _late.garbage(self.dtype), self.dtype, order=order)  # pyright: ignore
        elif not isinstance(out, np.ndarray):
            raise TypeError("Only numpy.ndarray can be obtained fromcupy.ndarray")
        elif self.dtype != out.dtype:
            raise TypeError(f"{out.dtype} array cannot be obtained from {self.dtype} array")
        elif self.shape != out.shape:
            raise ValueError(f"Shape mismatch. Expected shape: {self.shape}, actual shape: {out.shape}")
        elif not out.flags.forc:
            raise RuntimeError("`out` cannot be specified when copying to non-contiguous ndarray")
        if not _memory.has_order(self._memory, "C" if out.flags.c_contiguous else "F"):
            note("launch")  # made contiguous first
        note("copy to host", nbytes=self.nbytes)
        with cuda.Device(self._device), cuda.get_current_stream() if stream is None else stream as current:
            _memory.write_memory(out, _memory.read(self).copy())
            if blocking:
                current.synchronize()
        return out

    def set(self, arr: np.ndarray, stream: Any = None) -> None:
        if not isinstance(arr, np.ndarray):
            raise TypeError("Only numpy.ndarray can be set to cupy.ndarray")
        if (arr.dtype, arr.shape) != (self.dtype, self.shape):
            raise ValueError("Shape or dtype mismatch")
        note("copy to device", nbytes=self.nbytes)
        with cuda.get_current_stream() if stream is None else stream:
            _memory.write(self, arr)

    def item(self) -> Any:
        if self.size != 1:
            raise ValueError("can only convert an array of size 1 to a Python scalar")
        return self.get().item()

    def tolist(self) -> Any:
        return self.get().tolist()

    def tobytes(self, order: Any = "C") -> bytes:
        return self.get().tobytes(order)

    def __int__(self) -> int:
        return int(self.get())

    def __float__(self) -> float:
        return float(self.get())

    def __complex__(self) -> complex:
        return complex(self.get())

    def __index__(self) -> int:
        raise TypeError("'cupy.ndarray' object cannot be interpreted as an integer")

    def __bool__(self) -> bool:
        if self.size == 0:
            warnings.warn("The truth value of an empty array is ambiguous.", DeprecationWarning, stacklevel=2)
            return False
        if self.size > 1:
            raise ValueError(
                "The truth value of an array with more than one element is ambiguous. Use a.any() or a.all()"
            )
        return bool(self.get())

    def __repr__(self) -> str:
        return repr(self.get())

    def __str__(self) -> str:
        return str(self.get())

    def __format__(self, spec: str) -> str:
        return format(self.get(), spec)

    def __reduce__(self) -> tuple:
        return _creation.array, (self.get(order="A"),)

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        raise TypeError(
            "Implicit conversion to a NumPy array is not allowed. "
            "Please use `.get()` to construct a NumPy array explicitly."
        )

    # A container

    def __len__(self) -> int:
        if not self.ndim:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def __iter__(self) -> "Iterator[ndarray]":
        if not self.ndim:
            raise TypeError("iteration over a 0-d array")
        return (self[i] for i in range(len(self)))

    __getitem__ = _indexing.getitem
    __setitem__ = _indexing.setitem
    take = _indexing.take

    # Layout

    @kernel
    def reshape(self, *shape: Any, order: str = "C", copy: bool | None = None) -> "ndarray":
        if len(shape) == 1 and not isinstance(shape[0], int | np.integer):
            shape = tuple(shape[0])
        if order not in "CA":
            raise NotImplementedError("reshape in Fortran order")
        memory = self._memory.reshape(shape)
        if not copy and (self.size == 0 or np.may_share_memory(memory, self._memory)):
            return _memory.view(memory, self)
        note("launch")
        return _memory.result(_memory.read(self).reshape(shape))

    @kernel
    def ravel(self, order: Any = "C") -> "ndarray":
        memory = self._memory.ravel(order if order in "KF" else "C")
        if (
            order in "CA" and not self._memory.reshape(-1).flags.c_contiguous
        ):  # NumPy's negative stride is copied
            memory = memory.copy()
        if self.size == 0 or np.may_share_memory(memory, self._memory):
            return _memory.view(memory, self)
        note("launch")
        return _memory.result(_memory.read(self).ravel(order))

    @kernel
    def flatten(self, order: Any = "C") -> "ndarray":
        note("launch")
        return _memory.result(_memory.read(self).flatten(order))

    def transpose(self, *axes: Any) -> "ndarray":
        return _memory.view(self._memory.transpose(*axes), self)

    def swapaxes(self, a: int, b: int) -> "ndarray":
        if not self.ndim:
            raise ValueError("Axis out of range")
        return _memory.view(self._memory.swapaxes(a, b), self)

    def squeeze(self, axis: Any = None) -> "ndarray":
        memory = self._memory.squeeze(axis)
        return self if memory.shape == self.shape else _memory.view(memory, self)

    def view(self, dtype: Any = None, type: Any = None) -> "ndarray":
        return _memory.view(self._memory.view() if dtype is None else self._memory.view(dtype), self)

    def diagonal(self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> "ndarray":
        return _memory.view(self._memory.diagonal(offset, axis1, axis2), self)

    @kernel
    def astype(
        self, dtype: Any, order: Any = "K", casting: Any = None, subok: Any = None, copy: bool = True
    ) -> "ndarray":
        for name, setting in (("casting", casting), ("subok", subok)):
            if setting is not None:
                raise TypeError(f"{name} is not supported yet")
        dtype, order = _memory.check_dtype(dtype), (order or "K").upper()
        if dtype == self.dtype and not copy and _memory.has_order(self._memory, order):
            return self
        note("launch")
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _memory.result(_memory.read(self).astype(dtype, order=order), "K")

    @kernel
    def copy(self, order: Any = "C") -> "ndarray":
        if self._device == cuda.get_device_id():
            return self.astype(self.dtype, order=order)
        note("copy between devices")
        with self.device:
            values = _memory.read(self).copy(order)
        return _memory.result(values, "K")

    __copy__ = copy

    def __deepcopy__(self, memo: Any) -> "ndarray":
        with self.device:
            return self.copy()

    @kernel
    def fill(self, value: Any) -> None:
        _memory.check_device(self)
        values = _memory.read(value) if isinstance(value, ndarray) else np.asarray(value, dtype=self.dtype)
        if values.shape != ():
            raise ValueError(f"non-scalar {type(value).__module__}.ndarray cannot be used for fill")
        note("launch")
        _memory.write(self, values)

    # Reductions with CuPy's own parameters: no initial=, no where=

    sum, prod, mean, var, std = (
        _reductions.sum,
        _reductions.prod,
        _reductions.mean,
        _reductions.var,
        _reductions.std,
    )
    max, min, argmax, argmin = _reductions.max, _reductions.min, _reductions.argmax, _reductions.argmin
    all, any, cumsum, cumprod = _reductions.all, _reductions.any, _reductions.cumsum, _reductions.cumprod

    clip, round, repeat, nonzero = _selection.clip, _selection.round, _selection.repeat, _selection.nonzero
    sort, argsort, searchsorted = _selection.sort_in_place, _selection.argsort, _selection.searchsorted
    partition, argpartition = _selection.partition_in_place, _selection.argpartition
    dot = _products.dot

    def conj(self) -> "ndarray":
        return _ufuncs.conjugate(self) if self.dtype.kind == "c" else self

    conjugate = conj

    # Operators

    __add__, __radd__, __iadd__ = _operator(np.add), _reflected(np.add), _in_place(np.add)
    __sub__, __rsub__, __isub__ = _operator(np.subtract), _reflected(np.subtract), _in_place(np.subtract)
    __mul__, __rmul__, __imul__ = _operator(np.multiply), _reflected(np.multiply), _in_place(np.multiply)
    __truediv__, __rtruediv__ = _operator(np.true_divide), _reflected(np.true_divide)
    __itruediv__ = _in_place(np.true_divide)
    __floordiv__, __rfloordiv__ = _operator(np.floor_divide), _reflected(np.floor_divide)
    __ifloordiv__ = _in_place(np.floor_divide)
    __mod__, __rmod__, __imod__ = _operator(np.remainder), _reflected(np.remainder), _in_place(np.remainder)
    __pow__, __rpow__, __ipow__ = _operator(np.power), _reflected(np.power), _in_place(np.power)
    __and__, __rand__, __iand__ = (
        _operator(np.bitwise_and),
        _reflected(np.bitwise_and),
        _in_place(np.bitwise_and),
    )
    __or__, __ror__, __ior__ = _operator(np.bitwise_or), _reflected(np.bitwise_or), _in_place(np.bitwise_or)
    __xor__, __rxor__ = _operator(np.bitwise_xor), _reflected(np.bitwise_xor)
    __ixor__ = _in_place(np.bitwise_xor)
    __lshift__, __rlshift__ = _operator(np.left_shift), _reflected(np.left_shift)
    __rshift__, __rrshift__ = _operator(np.right_shift), _reflected(np.right_shift)
    __lt__, __le__ = _comparison(np.less), _comparison(np.less_equal)
    __gt__, __ge__ = _comparison(np.greater), _comparison(np.greater_equal)
    __eq__, __ne__ = _comparison(np.equal), _comparison(np.not_equal)
    __matmul__, __rmatmul__ = _operator(np.matmul), _reflected(np.matmul)

    def __neg__(self) -> "ndarray":
        return _ufuncs.negative(self)

    def __pos__(self) -> "ndarray":
        return _ufuncs.positive(self)

    def __abs__(self) -> "ndarray":
        return _ufuncs.absolute(self)

    def __invert__(self) -> "ndarray":
        return _ufuncs.invert(self)

    __array_ufunc__ = _protocols.array_ufunc
    __array_function__ = _protocols.array_function
