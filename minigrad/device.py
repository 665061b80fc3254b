"""Arrays live on the CPU (NumPy) or on a GPU (CuPy); chosen once, afterwards the data decides.

The only file that imports CuPy. Lecture section: GPU against CPU. Lesson: 04_gpu.
"""

import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np

from .lookup import check_choice

Array = Any
"""A ``numpy.ndarray`` or a ``cupy.ndarray``."""

TRANSPOSED = 1 << 16  # elements of a matrix that is copied by columns; a smaller one is in the cache
INSTALL = "pip install 'minigrad-course[cuda12]' (or cuda13), or use --device numpy"


def array_module(x: Array) -> ModuleType:
    """The module whose functions take ``x``: ``numpy`` for host data, ``cupy`` for device arrays."""
    if type(x) is np.ndarray or not on_gpu(x):
        return np
    return _cupy()


def on_gpu(x: Any) -> bool:
    """Whether ``x`` is a device array."""
    return type(x) is not np.ndarray and is_device_type(type(x))


@cache
def is_device_type(kind: type) -> bool:
    """Whether arrays of this type are CuPy's; PyTorch's tensors have its interface too, also on the host."""
    return kind.__module__.partition(".")[0] == "cupy" and hasattr(kind, "__cuda_array_interface__")


def to_device(x: Array, device: str) -> Array:
    """``x`` on ``device`` ("numpy" or "cupy"); the same array when it is already there.

    It keeps its memory order on the way to the GPU: images stay channels-last. Raises ValueError for an
    unknown device and RuntimeError when there is no CuPy or no CUDA GPU.
    """
    if device == "numpy":
        return to_host(x)
    check_device(device)
    if on_gpu(x) or x.flags.c_contiguous:
        return _cupy().asarray(x)
    outermost_first = np.argsort([-abs(stride) for stride in x.strides], kind="stable")
    return _cupy().asarray(x.transpose(outermost_first)).transpose(np.argsort(outermost_first).tolist())


def check_device(device: str) -> None:
    """Raise ValueError for an unknown device, RuntimeError where there is no CuPy or no CUDA GPU."""
    check_choice("device", device, ("numpy", "cupy"))
    if device == "cupy" and (problem := cuda_problem()):
        raise RuntimeError(f"--device cupy: {problem}")


def to_host(x: Array) -> np.ndarray:
    """``x`` as a NumPy array, copied from the GPU if it is there."""
    return _cupy().asnumpy(x) if on_gpu(x) else np.asarray(x)


def to_floats(scalars: Sequence[Array]) -> list[float]:
    """0-d arrays as Python numbers; from a GPU they are one copy, for which the host waits once."""
    if len(scalars) == 1 or not any(map(on_gpu, scalars)):
        return [float(scalar) for scalar in scalars]
    return to_host(_cupy().stack(scalars)).tolist()


def in_c_order(x: Array, dtype: Any) -> Array:
    """A copy of ``x`` in C order and of ``dtype``, of large transposed matrices some columns at a time.

    NumPy copies them row by row, and the elements of a row are each in another line of the cache. Where they
    are a multiple of 4,096 bytes apart these lines displace one another: 7 times as long, of 1024 x 1024.
    """
    large = type(x) is np.ndarray and x.ndim > 1 and x.size >= TRANSPOSED
    if not large or not x.swapaxes(-1, -2).flags.c_contiguous:
        return x.astype(dtype, order="C")
    copy = np.empty(x.shape, dtype)
    size = 64 if x.strides[-1] % 4096 else 16
    for start in range(0, x.shape[-1], size):
        copy[..., start : start + size] = x[..., start : start + size]
    return copy


def sum_in_order(a: Array, b: Array) -> Array:
    """``a + b``, two arrays of one shape, in a's memory order; CuPy's functions alone write C order."""
    xp = array_module(a)
    return a + b if xp is np else xp.add(a, b, out=xp.empty_like(a, dtype=xp.result_type(a, b)))


def without_memory(like: Array) -> Array:
    """An array with the shape and dtype of ``like`` that takes no memory."""
    xp = array_module(like)
    return xp.broadcast_to(xp.zeros((), like.dtype), like.shape)


def unflatten(flat: Array, arrays: Iterable[Array]) -> list[Array]:
    """Consecutive elements of ``flat`` as views in the shapes of ``arrays``; there may be more elements."""
    views, start = [], 0
    for array in arrays:
        views.append(flat[start : start + array.size].reshape(array.shape))
        start += array.size
    return views


@cache
def elementwise_kernel(inputs: str, outputs: str, statements: str, name: str) -> Callable[..., Any]:
    """A kernel that computes all ``statements`` for each element in one launch, compiled at its first call.

    ``inputs`` and ``outputs`` are parameters such as "T x, raw T y": x is the element, y[j] is any of y's.
    Statements are C++ of a kind that tests can compute without a GPU: declarations, assignments, ``if``
    without else, and loops of equal length; ``choose(c, a, b)`` is a where c holds, else b.
    """
    choose = "#define choose(c, a, b) ((c) ? (a) : (b))"
    return _cupy().ElementwiseKernel(inputs, outputs, statements, name, preamble=choose)


@cache
def cuda_module(source: str, **macros: object) -> Any:
    """CUDA C++ of a file whose sizes are ``macros``; ``get_function(name)`` is a kernel of it.

    A kernel is called with the grid, the block and its arguments: arrays in C order, numbers of ``np.int32``,
    and 0 for an array that is not there.
    """
    defines = "".join(f"#define {name} {value}\n" for name, value in macros.items())
    return _cupy().RawModule(code=defines + source, options=("-std=c++17",))


@cache
def compiles_cuda() -> bool:
    """Whether CUDA C++ can be compiled and run here, which is tried once."""
    try:
        cuda_module('extern "C" __global__ void nothing() {}').get_function("nothing")((1,), (1,), ())
    except Exception:  # whatever the compiler or the driver raises
        return False
    return True


def loaded_cuda() -> Any:
    """``cupy.cuda`` if this process uses CuPy already, and has a GPU; otherwise None."""
    cuda = _cupy().cuda if "cupy" in sys.modules else None  # the import waits while another thread imports
    return cuda if cuda is not None and cuda.is_available() else None


@cache
def nccl() -> Any:
    """``cupy.cuda.nccl``; its ``available`` says whether the library is there."""
    with warnings.catch_warnings(action="ignore"):  # of its absence
        from cupy.cuda import nccl  # pyright: ignore[reportMissingImports]
    return nccl


def use_gpu_of(local_rank: int) -> None:
    """Make GPU ``local_rank`` (modulo the number of GPUs) this thread's current one."""
    runtime = _cupy().cuda.runtime
    runtime.setDevice(local_rank % runtime.getDeviceCount())


@cache
def cuda_problem() -> str | None:
    """Why the GPU cannot be used, with the way out; None when it can. A kernel is run, once a process."""
    try:
        cupy = _cupy()
    except ModuleNotFoundError as error:
        if error.name == "cupy":
            return f"CuPy is not installed; {INSTALL}"
        return f"CuPy cannot be imported ({error}); {INSTALL}"
    except ImportError as error:
        return f"CuPy cannot be imported ({first_line(error)}); uninstall all packages cupy-*, then {INSTALL}"
    if not cupy.cuda.is_available():
        return "CuPy finds no CUDA device (no GPU or no driver); use --device numpy"
    try:
        float(cupy.ones(1).sum())
    except Exception as error:  # whatever the compiler, the driver or the libraries raise
        return f"CuPy cannot run a kernel ({first_line(error)}); {INSTALL}"
    return None


def first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__


def _cupy() -> ModuleType:
    import cupy  # pyright: ignore[reportMissingImports]

    return cupy
