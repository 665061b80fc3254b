"""How kernels read and write device arrays: the only functions that touch an array's memory."""

import weakref
from typing import Any

import numpy as np

from . import _array, _capture, _counts, _late, cuda

byte_bounds = getattr(np, "byte_bounds", None) or np.lib.array_utils.byte_bounds  # NumPy 1 and 2
_owners: weakref.WeakValueDictionary[int, np.ndarray] = weakref.WeakValueDictionary()  # by their address

NUMBERS = (int, float, bool, complex)


def read(x: "_array.ndarray") -> np.ndarray:
    """The values of ``x`` as a kernel of the current stream reads them."""
    check_device(x)
    if _late.kernels_are_late():
        for queue in cuda.get_current_stream()._queues():
            queue.run_before_reading(x._memory)
    return x._memory


def write(x: "_array.ndarray", values: Any) -> None:
    """A kernel of the current stream writes ``values``, broadcast and cast, to ``x``."""
    write_memory(x._memory, values)


def write_memory(memory: np.ndarray, values: Any) -> None:
    if cuda.captured_stream() is not None:
        _capture.check_recorded()
        return
    with np.errstate(all="ignore"):
        if _late.kernels_are_late():  # what is wrong with the values is known now, not late
            values = np.broadcast_to(values, memory.shape).astype(memory.dtype)
        cuda.get_current_stream()._queue().write(memory, values)


def result(values: Any, order: Any = "C") -> "_array.ndarray":
    """A new array on the current device, which a kernel of the current stream fills with ``values``.

    CuPy's kernels write C order, whatever the order of their operands.
    """
    values = np.array(values, order=order)
    if not _late.kernels_are_late() and cuda.captured_stream() is None:
        return array_of(values)
    x = array_of(np.full_like(values, _late.garbage(values.dtype)))
    write(x, values)
    return x


def empty(shape: Any, dtype: Any, order: Any = "C") -> "_array.ndarray":
    """A new array on the current device that nobody has written to."""
    return array_of(np.full(shape, _late.garbage(np.dtype(dtype)), dtype, order=order))


def array_of(memory: np.ndarray, base: "_array.ndarray | None" = None) -> "_array.ndarray":
    """The device array with this memory: of its own on the current device, or a part of ``base``."""
    if base is None and memory.size:
        memory = cuda.placed(memory)
        _owners[memory.ctypes.data] = memory
    x = object.__new__(_array.ndarray)
    x._memory, x.base, x._device = memory, base, cuda.get_device_id() if base is None else base._device
    return x


def array_at(address: int, shape: tuple[int, ...], dtype: Any, strides: tuple[int, ...]) -> "_array.ndarray":
    """The array at an address; raises where no array of the device is there."""
    first = _owners.get(address)
    for owner in [*([] if first is None else [first]), *_owners.values()]:
        low, high = byte_bounds(owner)
        size = np.dtype(dtype).itemsize + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
        if low <= address and address + size <= high:
            buffer = cuda._buffer_at(low, high - low, owner)
            x = object.__new__(_array.ndarray)
            x._memory = np.ndarray(shape, dtype, buffer, address - low, strides)
            x.base, x._device = None, cuda.get_device_id()
            return x
    raise cuda.runtime.CUDARuntimeError("cudaErrorIllegalAddress: an illegal memory access was encountered")


def view(memory: np.ndarray, of: "_array.ndarray") -> "_array.ndarray":
    """A view of ``of`` with this part of its memory."""
    return array_of(memory, of if of.base is None else of.base)


def check_device(*operands: Any) -> None:
    """Raise ValueError for an array of another device, as CuPy does where there is no peer access."""
    current = cuda.get_device_id()
    for x in operands:
        if isinstance(x, _array.ndarray) and x._device != current:
            if not cuda.PEER_ACCESS:
                raise ValueError(
                    f"The device where the array resides ({x._device}) is different from the current device "
                    f"({current}). Peer access is unavailable between these devices."
                )
            _counts.remark("an array of another device was used: PerformanceWarning, peer access")


def operand(x: Any) -> Any:
    """What a kernel takes: the values of a device array, or a number. A host array is refused."""
    if isinstance(x, _array.ndarray):
        return read(x)
    if type(x) in NUMBERS or isinstance(x, np.generic):
        return x
    raise TypeError(f"Unsupported type {type(x)}")


def check_array(*operands: Any) -> None:
    for x in operands:
        if not isinstance(x, _array.ndarray):
            raise TypeError(
                "Argument has incorrect type "
                f"(expected cupy._core.core._ndarray_base, got {type(x).__name__})"
            )


def check_dtype(dtype: Any) -> np.dtype:
    dtype = np.dtype(dtype)
    if dtype.char not in "?bhilqBHILQefdFD":
        raise ValueError(f"Unsupported dtype {dtype}")
    return dtype


def has_order(memory: np.ndarray, order: str) -> bool:
    c, f = memory.flags.c_contiguous, memory.flags.f_contiguous
    return {"K": True, "A": c or f, "C": c, "F": f}[order]
