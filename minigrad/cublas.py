"""Matrix products by NVIDIA's cuBLAS without CuPy, so that a CUDA graph can hold them.

CuPy refuses cuBLAS while a stream is captured (its issue 6290), although cuBLAS supports that for a handle
with a workspace of its own; without one it would allocate memory inside the graph. The arguments are those
that CuPy passes, and the workspace has cuBLAS's default size: cuBLAS has no reason for another algorithm.
Lecture section: GPU against CPU. Lesson: 04_gpu, by ``product.py``.
"""

from __future__ import annotations

import ctypes
import os
from ctypes import c_double, c_float, c_int, c_size_t, c_void_p
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from .device import INSTALL, Array, array_module

DEFAULT_STREAMS = (0, 1, 2)  # null, legacy, per thread
MIB = 1 << 20
WORKSPACES = {9: 32, 10: 32, 12: 12}  # MiB by generation, cuBLAS's default as NVIDIA documents it; others 4
SIGNATURES = {
    "cublasCreate_v2": (c_void_p,),
    "cublasSetStream_v2": (c_void_p, c_void_p),
    "cublasSetWorkspace_v2": (c_void_p, c_void_p, c_size_t),
    # handle, transposed a and b, m, n, k, alpha, three of a and of b: pointer, type, leading dimension; beta,
    # three of c, the type of the sums, the algorithm
    "cublasGemmEx": (
        *(c_void_p, c_int, c_int, c_int, c_int, c_int, c_void_p, c_void_p, c_int, c_int),
        *(c_void_p, c_int, c_int, c_void_p, c_void_p, c_int, c_int, c_int, c_int),
    ),
}


class Precision(NamedTuple):
    """cuBLAS's numbers for a dtype: the type of the matrices, that of the sums, and the type of alpha."""

    matrices: int
    sums: int
    number: Any


PRECISIONS = {"f": Precision(0, 68, c_float), "d": Precision(1, 70, c_double)}
TF32 = Precision(0, 77, c_float)


def on_own_stream(xp: Any) -> bool:
    """Whether the current stream is no default stream of CUDA: those cannot be captured."""
    return xp.cuda.get_current_stream().ptr not in DEFAULT_STREAMS


def are_matrices(a: Array, b: Array) -> bool:
    """Whether ``product`` takes a and b; CuPy multiplies what is empty, and two vectors, without cuBLAS."""
    return (
        type(a) is type(b)
        and a.dtype == b.dtype
        and a.dtype.char in PRECISIONS
        and (a.ndim, b.ndim) in ((1, 2), (2, 2))
        and a.shape[-1] == b.shape[0] > 0
        and a.size // b.shape[0] * b.shape[1] > 1
    )


@cache
def precision_of(char: str) -> Precision:
    """The precision of products in a dtype; CuPy, too, reads the variable at the first product."""
    tf32 = char == "f" and os.environ.get("CUPY_TF32", "0") not in ("", "0")
    return TF32 if tf32 else PRECISIONS[char]


def product(a: Array, b: Array, out: Array | None = None) -> Array:
    """a @ b on the current stream, written into the matrix ``out`` if it is passed.

    cuBLAS reads and writes columns: a matrix in C order is its transpose there, so c.T = b.T a.T is computed.
    """
    xp = array_module(a)
    rows = a if a.ndim == 2 else a.reshape(1, -1)
    (n, k), m, precision = rows.shape, b.shape[1], precision_of(a.dtype.char)
    direct = out is not None and out.flags.c_contiguous and out.dtype == a.dtype
    c: Any = out if direct else xp.empty((n, m), a.dtype)
    right, right_by_columns, right_step = columns(b)
    left, left_by_columns, left_step = columns(rows.T)
    kind, one, zero = precision.matrices, precision.number(1), precision.number(0)
    device, stream = xp.cuda.Device(), xp.cuda.get_current_stream()
    handle = handle_of(xp, device.id, stream.ptr)
    call(
        xp, "cublasGemmEx", handle.pointer, int(right_by_columns), int(not left_by_columns), m, n, k,
        ctypes.byref(one), right.data.ptr, kind, right_step, left.data.ptr, kind, left_step,
        ctypes.byref(zero), c.data.ptr, kind, m, precision.sums, handle.algorithm,
    )  # fmt: skip
    if out is not None and not direct:
        out[...] = c
    return c.reshape(m) if a.ndim == 1 else c if out is None else out


def columns(x: Array) -> tuple[Array, bool, int]:
    """The matrix, whether it lies in memory column by column, and how far the columns (or rows) are apart."""
    if x.flags.f_contiguous:
        return x, True, max(x.strides[1] // x.itemsize, x.shape[0])
    if not x.flags.c_contiguous:
        x = x.copy()
    return x, False, x.strides[0] // x.itemsize


class Handle(NamedTuple):
    """A handle of cuBLAS, the array that is its workspace, and the algorithm that its GPU takes."""

    pointer: c_void_p
    workspace: Array
    algorithm: int


@cache
def handle_of(xp: Any, device: int, stream: int) -> Handle:
    """The handle for a stream of a GPU; with one workspace for each stream, results are reproducible."""
    capability = int(xp.cuda.Device(device).compute_capability)
    workspace = xp.empty(WORKSPACES.get(capability // 10, 4) * MIB, np.uint8)
    pointer = c_void_p()
    call(xp, "cublasCreate_v2", ctypes.byref(pointer))
    call(xp, "cublasSetStream_v2", pointer, stream)
    call(xp, "cublasSetWorkspace_v2", pointer, workspace.data.ptr, workspace.nbytes)  # the stream resets it
    return Handle(pointer, workspace, 99 if capability >= 80 else -1)  # tensor operations, or the default


def call(xp: Any, name: str, *arguments: Any) -> None:
    """Call a function of cuBLAS; raises RuntimeError where its status is not 0."""
    status = getattr(library(xp), name)(*arguments)
    if status:
        raise RuntimeError(f"{name} of cuBLAS fails with status {status}")


@cache
def library(xp: Any) -> ctypes.CDLL:
    """cuBLAS as CuPy has loaded it; raises RuntimeError where there is none of CuPy's version of CUDA."""
    name = f"libcublas.so.{xp.cuda.runtime.runtimeGetVersion() // 1000}"
    try:
        xp.cuda.get_cublas_handle()  # CuPy looks for the library in its wheels and in the system
        cublas = ctypes.CDLL(name)
    except (ImportError, OSError) as error:
        raise RuntimeError(f"cuBLAS cannot be loaded as {name} ({error}); {INSTALL}") from error
    for function, types in SIGNATURES.items():
        getattr(cublas, function).argtypes = types
    return cublas
