"""New arrays, uploads and copies. Fresh memory is garbage: NaN where it can be."""

from typing import Any

import numpy as np

from . import _array, _late, _manipulation, _memory, cuda
from ._capture import kernel
from ._counts import note


def array(
    obj: Any,
    dtype: Any = None,
    copy: bool | None = True,
    order: Any = "K",
    subok: bool = False,
    ndmin: int = 0,
    *,
    blocking: bool = False,
) -> Any:
    if subok:
        raise NotImplementedError("subok")
    order = (order or "K").upper()
    if isinstance(obj, _array.ndarray):
        return of_device(obj, dtype, copy, order, ndmin)
    if hasattr(obj, "__cuda_array_interface__"):
        raise NotImplementedError("foreign device arrays")
    if isinstance(obj, list | tuple) and obj and all(map(holds_device_arrays, obj)):
        parts = [x if x.ndim else x.reshape(1) for x in flattened(obj)]
        new = _manipulation.concatenate(parts).reshape(shape_of(obj))
        return new if dtype is None else new.astype(dtype, copy=False)
    values = np.array(np.asarray(obj, dtype=dtype), ndmin=ndmin)  # raises where it meets a device array
    _memory.check_dtype(values.dtype)
    if order in "KA":  # an order that is neither C nor Fortran becomes C
        order = "F" if isinstance(obj, np.ndarray) and obj.flags.fnc else "C"
    if values.ndim:
        note("copy to device", nbytes=values.nbytes)
    else:
        note("launch")
    new = filled(values, order)
    late = _late.kernels_are_late()
    if late and isinstance(obj, np.ndarray) and cuda.is_pinned(obj) and values.dtype == obj.dtype:
        cuda.get_current_stream()._queue().write(new._memory, obj)
    if blocking:
        cuda.get_current_stream().synchronize()
    return new


@kernel
def filled(values: np.ndarray, order: str) -> Any:
    return _memory.result(values, order)


@kernel
def of_device(x: Any, dtype: Any, copy: bool | None, order: str, ndmin: int) -> Any:
    dtype = x.dtype if dtype is None else _memory.check_dtype(dtype)
    if x._device != cuda.get_device_id():
        return x.copy(order).astype(dtype, copy=False)
    if dtype == x.dtype and _memory.has_order(x._memory, order) and not copy:
        new = x
    elif copy is False:
        raise ValueError("Unable to avoid copy while creating an array as requested.")
    else:
        new = x.astype(dtype, order=order)
    if ndmin > new.ndim:
        new = _memory.view(new._memory.reshape((1,) * (ndmin - new.ndim) + new.shape), new)
    return new


def holds_device_arrays(x: Any) -> bool:
    if isinstance(x, list | tuple):
        return bool(x) and all(map(holds_device_arrays, x))
    return isinstance(x, _array.ndarray)


def flattened(x: Any) -> list:
    return [x] if isinstance(x, _array.ndarray) else [y for part in x for y in flattened(part)]


def shape_of(x: Any) -> tuple[int, ...]:
    return x.shape if isinstance(x, _array.ndarray) else (len(x), *shape_of(x[0]))


def asarray(
    a: Any, dtype: Any = None, order: Any = None, *, copy: bool | None = None, blocking: bool = False
) -> Any:
    return array(a, dtype, copy, order, blocking=blocking)


asanyarray = asarray


def ascontiguousarray(a: Any, dtype: Any = None) -> Any:
    _memory.check_array(a)
    if a.ndim == 0:
        return a.reshape(1)
    return a.astype(a.dtype if dtype is None else dtype, order="C", copy=False)


def asfortranarray(a: Any, dtype: Any = None) -> Any:
    _memory.check_array(a)
    return a.astype(a.dtype if dtype is None else dtype, order="F", copy=False)


def asnumpy(
    a: Any, stream: Any = None, order: Any = "C", out: Any = None, *, blocking: bool = True
) -> np.ndarray:
    if isinstance(a, _array.ndarray):
        return a.get(stream=stream, order=order, out=out, blocking=blocking)
    if out is None:
        return np.asarray(a, order=order)
    out[...] = a
    return out


def copy(a: Any, order: Any = "K") -> Any:
    return a.copy(order=order)


def copyto(dst: Any, src: Any, casting: Any = "same_kind", where: Any = None) -> None:
    if where is not None:
        raise NotImplementedError("where= of copyto")
    if not isinstance(dst, _array.ndarray):
        if dst.size:
            raise AttributeError(f"{type(dst)} is no cupy.ndarray")
    elif not isinstance(src, _array.ndarray):
        if dst.dtype.kind == "b" and type(src) is not bool:
            raise TypeError(f"Cannot cast {type(src)} to bool in {casting} casting mode")
        dst.fill(src)
    elif not np.can_cast(src.dtype, dst.dtype, casting):
        raise TypeError(f"Cannot cast {src.dtype} to {dst.dtype} in {casting} casting mode")
    else:
        dst[...] = _manipulation.broadcast_to(src, dst.shape)


def empty(shape: Any, dtype: Any = float, order: Any = "C") -> Any:
    return _memory.empty(shape, _memory.check_dtype(dtype), order)


@kernel
def zeros(shape: Any, dtype: Any = float, order: Any = "C") -> Any:
    note("memset")
    return _memory.result(np.zeros(shape, _memory.check_dtype(dtype), order), "K")


@kernel
def ones(shape: Any, dtype: Any = float, order: Any = "C") -> Any:
    note("launch")
    return _memory.result(np.ones(shape, _memory.check_dtype(dtype), order), "K")


@kernel
def full(shape: Any, fill_value: Any, dtype: Any = None, order: Any = "C") -> Any:
    note("launch")
    if dtype is None:
        dtype = np.array(fill_value).dtype if np.isscalar(fill_value) else fill_value.dtype
    value = _memory.read(fill_value) if isinstance(fill_value, _array.ndarray) else fill_value
    return _memory.result(np.full(shape, value, _memory.check_dtype(dtype), order), "K")


def like(x: Any, value: Any, dtype: Any, order: Any, subok: Any, shape: Any) -> np.ndarray:
    """A host array full of ``value``, in the shape, dtype and order that CuPy gives an array like ``x``."""
    if subok is not None:
        raise TypeError("subok is not supported yet")
    if np.isscalar(shape):
        shape = (shape,)
    memory = x._memory if isinstance(x, _array.ndarray) else x
    return np.full_like(memory, value, dtype, order, False, shape or None)  # () counts as no shape


def empty_like(
    prototype: Any, dtype: Any = None, order: Any = "K", subok: Any = None, shape: Any = None
) -> Any:
    memory = like(prototype, 0, dtype, order, subok, shape)
    note("allocation")
    return _memory.array_of(np.full_like(memory, _late.garbage(memory.dtype)))


@kernel
def zeros_like(a: Any, dtype: Any = None, order: Any = "K", subok: Any = None, shape: Any = None) -> Any:
    values = like(a, 0, dtype, order, subok, shape)
    note("memset")
    return _memory.result(values, "K")


def ones_like(a: Any, dtype: Any = None, order: Any = "K", subok: Any = None, shape: Any = None) -> Any:
    return full_like(a, 1, dtype, order, subok, shape)


@kernel
def full_like(
    a: Any, fill_value: Any, dtype: Any = None, order: Any = "K", subok: Any = None, shape: Any = None
) -> Any:
    values = like(a, _memory.operand(fill_value), dtype, order, subok, shape)
    note("launch")
    return _memory.result(values, "K")


@kernel
def arange(start: Any, stop: Any = None, step: Any = 1, dtype: Any = None) -> Any:
    if any(isinstance(x, _array.ndarray) for x in (start, stop, step)):
        raise TypeError("arange takes host numbers")
    note("launch")
    return _memory.result(np.arange(*((start,) if stop is None else (start, stop, step)), dtype=dtype))
