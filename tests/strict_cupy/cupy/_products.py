"""Products. cuBLAS takes a transposed matrix as it is; of a stack, CuPy copies what has no C order."""

import math
from typing import Any

import numpy as np

from . import _array, _memory, _ufuncs
from ._capture import kernel
from ._counts import note


@kernel
def matmul(a: Any, b: Any, out: Any = None, **settings: Any) -> Any:
    if settings:
        raise NotImplementedError("settings of matmul")
    if isinstance(out, tuple):
        (out,) = out
    _memory.check_array(a, b)
    if out is not None and not isinstance(out, _array.ndarray):
        raise TypeError("`out` must be a tuple or `cupy.ndarray`")
    _memory.check_device(a, b, out)
    if not a.ndim or not b.ndim:
        raise ValueError("Scalar operands are not allowed, use '*' instead")
    if a.ndim <= 2 and b.ndim <= 2:
        return matrix_product(a, b, out)
    for x in (a, b):
        if not x.flags.c_contiguous:
            note("launch")
            note("product operand copied", nbytes=x.nbytes)
    values = np.matmul(_memory.read(a), _memory.read(b))
    if out is not None and out.shape != values.shape:
        raise ValueError("Output array has an invalid size")
    note("gemm" if a.size and b.size else "memset")
    if a.size and b.size and math.prod(values.shape[:-2]) > 1 and a.shape[:-2] != b.shape[:-2]:
        note("launch", 3)  # the addresses of the matrices
    if out is None:
        return _memory.result(values)
    if not out.flags.c_contiguous or out.dtype != values.dtype:
        note("launch")
    _memory.write(out, values)
    return out


@kernel
def matrix_product(a: Any, b: Any, out: Any) -> Any:
    dtype = np.promote_types(a.dtype, b.dtype)
    if out is None or out.flags.c_contiguous and dtype == out.dtype:
        return dot(a, b, out)
    product = dot(a, b)
    if product.shape != out.shape:
        raise ValueError("Output array has an invalid size")
    if not np.can_cast(dtype, out.dtype, "same_kind"):
        raise TypeError(f"Cannot cast output from {dtype} to {out.dtype}")
    out[...] = product
    return out


@kernel
def dot(a: Any, b: Any, out: Any = None) -> Any:
    _memory.check_array(a, b)
    _memory.check_device(a, b, out)
    if out is not None and np.result_type(a.dtype, b.dtype) != out.dtype:
        raise ValueError("Not supported dtype combination.")
    if out is not None and not out.flags.c_contiguous:
        raise ValueError("Output array must be C-contiguous")
    if not a.ndim or not b.ndim:
        return _ufuncs.multiply(a, b, out=out)
    if a.shape[-1] != b.shape[max(b.ndim - 2, 0)]:
        raise ValueError("Axis dimension mismatch")
    for x in (a, b):
        if x.ndim > 1 and not x.flags.forc and not is_matrix_of_cublas(x):
            note("launch")
            note("product operand copied", nbytes=x.nbytes)
    with np.errstate(all="ignore"):
        values = np.dot(_memory.read(a), _memory.read(b))
    if not a.size or not b.size:
        note("memset")
    elif np.size(values) == 1:
        note("launch", 2)  # (a * b).sum()
    else:
        note("gemm")
    if out is None:
        return _memory.result(values)
    if out.size != np.size(values):
        raise ValueError("Output array has an invalid size")
    _memory.write(out, np.reshape(values, out.shape))
    return out


def is_matrix_of_cublas(x: Any) -> bool:
    return x.ndim == 2 and x.itemsize in x.strides


@kernel
def vdot(a: Any, b: Any) -> Any:
    _memory.check_array(a, b)
    if a.size != b.size:
        raise ValueError("Axis dimension mismatch")
    note("launch", 2)
    with np.errstate(all="ignore"):
        return _memory.result(np.dot(_memory.read(a).ravel(), _memory.read(b).ravel()))


@kernel
def tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    _memory.check_array(a, b)
    if not a.ndim or not b.ndim:
        if axes != 0 and axes != ((), ()):
            raise ValueError("An input is zero-dim while axes has dimensions")
        return _ufuncs.multiply(a, b)
    pair = axes if isinstance(axes, tuple | list) else (range(a.ndim - axes, a.ndim), range(axes))
    for x, summed in zip((a, b), pair, strict=True):
        summed = [i % x.ndim for i in ((summed,) if np.isscalar(summed) else summed)]
        matrices = x._memory.transpose([*summed, *(i for i in range(x.ndim) if i not in summed)])
        rows = math.prod(matrices.shape[: len(summed)])
        if x.size and not np.may_share_memory(matrices.reshape(rows, -1), x._memory):
            note("launch")
            note("product operand copied", nbytes=x.nbytes)
    note("gemm")
    return _memory.result(np.tensordot(_memory.read(a), _memory.read(b), axes))  # pyright: ignore
