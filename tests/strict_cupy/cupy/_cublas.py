"""The functions of libcublas that the project calls through ctypes: C functions, computed by NumPy.

``ctypes.CDLL("libcublas.so.12")`` gives them once CuPy has loaded cuBLAS, as it gives the real library then.
"""

import ctypes
from collections.abc import Callable
from ctypes import c_double, c_float, c_int, c_size_t, c_void_p
from typing import Any

import numpy as np

from . import _capture, _memory, cuda

SONAME = f"libcublas.so.{cuda.runtime.runtimeGetVersion() // 1000}"
INVALID_VALUE, NOT_SUPPORTED = 7, 15
TYPES = {0: (np.dtype(np.float32), c_float, (68, 77)), 1: (np.dtype(np.float64), c_double, (70,))}
handles: dict[int, "Handle"] = {}


class Handle:
    def __init__(self) -> None:
        self.stream, self.workspace = 0, 0


def create(pointer: int) -> int:
    handle = 4096 + len(handles)
    handles[handle] = Handle()
    c_void_p.from_address(pointer).value = handle
    return 0


def set_stream(handle: int, stream: int | None) -> int:
    handles[handle].stream, handles[handle].workspace = stream or 0, 0  # the default workspace again
    return 0


def set_workspace(handle: int, workspace: int | None, size: int) -> int:
    owner = _memory._owners.get(workspace or 0)
    if owner is None or size > owner.nbytes:  # the start of an allocation has the alignment of 256 bytes
        return INVALID_VALUE
    handles[handle].workspace = size
    return 0


def gemm(
    handle: int, turn_a: int, turn_b: int, m: int, n: int, k: int,
    alpha: int, a: int, a_type: int, a_step: int, b: int, b_type: int, b_step: int,
    beta: int, c: int, c_type: int, c_step: int, sums: int, algorithm: int,
) -> int:  # fmt: skip
    """c = op(a) op(b) for matrices stored by columns: as rows, c.T = op(b).T op(a).T."""
    if not a_type == b_type == c_type or a_type not in TYPES or sums not in TYPES[a_type][2]:
        return NOT_SUPPORTED
    dtype, number, _ = TYPES[a_type]
    if (number.from_address(alpha).value, number.from_address(beta).value) != (1, 0):
        return NOT_SUPPORTED
    if a_step < (k if turn_a else m) or b_step < (n if turn_b else k) or c_step < m or min(m, n, k) < 1:
        return INVALID_VALUE
    item = dtype.itemsize
    stream = stream_of(handles[handle].stream)
    if stream._nodes is not None and not handles[handle].workspace:
        raise NotImplementedError("cuBLAS without a workspace of its own would allocate memory in the graph")
    with stream:
        left = _memory.array_at(b, (n, k), dtype, (item, b_step * item) if turn_b else (b_step * item, item))
        right = _memory.array_at(a, (k, m), dtype, (item, a_step * item) if turn_a else (a_step * item, item))
        multiply(left, right, _memory.array_at(c, (n, m), dtype, (c_step * item, item)))
    return 0


@_capture.kernel
def multiply(left: Any, right: Any, out: Any) -> None:
    with np.errstate(all="ignore"):
        _memory.write(out, np.dot(_memory.read(left), _memory.read(right)))
    cuda._counts.note("own gemm")


def stream_of(pointer: int) -> Any:
    return next((s for s in cuda._streams if s.ptr == pointer), cuda.Stream.null)


class Function:
    """A C function; without ``argtypes`` ctypes would cut pointers to 32 bits."""

    def __init__(self, compute: Callable[..., int], *types: Any) -> None:
        self.types, self.argtypes, self.error = types, None, None

        def computed(*arguments: Any) -> int:
            try:
                return compute(*arguments)
            except BaseException as error:  # a C function cannot raise it
                self.error = error
                return 1

        self.pointer = ctypes.CFUNCTYPE(c_int, *types)(computed)

    def __call__(self, *arguments: Any) -> int:
        if self.argtypes is None or tuple(self.argtypes) != self.types:
            raise TypeError(f"argtypes are {self.argtypes}, the function takes {self.types}")
        status, error = self.pointer(*arguments), self.error
        self.error = None
        if error is not None:
            raise error
        return status


class Library:
    cublasCreate_v2 = Function(create, c_void_p)
    cublasSetStream_v2 = Function(set_stream, c_void_p, c_void_p)
    cublasSetWorkspace_v2 = Function(set_workspace, c_void_p, c_void_p, c_size_t)
    cublasGemmEx = Function(
        gemm, c_void_p, c_int, c_int, c_int, c_int, c_int, c_void_p, c_void_p, c_int, c_int,
        c_void_p, c_int, c_int, c_void_p, c_void_p, c_int, c_int, c_int, c_int,
    )  # fmt: skip


real = ctypes.CDLL


def installed() -> int:
    """Let ``ctypes.CDLL`` find the library from now on."""
    ctypes.CDLL = loaded  # pyright: ignore[reportAttributeAccessIssue]
    return 1


def loaded(name: Any, *args: Any, **settings: Any) -> Any:
    return Library() if name == SONAME else real(name, *args, **settings)
