"""Arrays live on the CPU (NumPy) or on a GPU (CuPy); chosen once, afterwards the data decides.

The only file that imports CuPy. Lecture section: GPU against CPU. Lesson: 04_gpu.
"""

from collections.abc import Iterable
from types import ModuleType
from typing import Any

import numpy as np

from .lookup import check_choice

Array = Any
"""A ``numpy.ndarray`` or a ``cupy.ndarray``."""


def array_module(x: Array) -> ModuleType:
    """The module whose functions take ``x``: ``numpy`` for host data, ``cupy`` for device arrays."""
    if type(x) is np.ndarray or not hasattr(x, "__cuda_array_interface__"):
        return np
    return _cupy()


def to_device(x: Array, device: str) -> Array:
    """``x`` on ``device`` ("numpy" or "cupy"); the same array when it is already there.

    Raises ValueError for an unknown device and RuntimeError when there is no CuPy or no CUDA GPU.
    """
    if device == "numpy":
        return to_host(x)
    check_device(device)
    return _cupy().asarray(x)


def check_device(device: str) -> None:
    """Raise ValueError for an unknown device, RuntimeError where there is no CuPy or no CUDA GPU."""
    check_choice("device", device, ("numpy", "cupy"))
    if device == "cupy" and (problem := cuda_problem()):
        raise RuntimeError(f"--device cupy: {problem}")


def to_host(x: Array) -> np.ndarray:
    """``x`` as a NumPy array, copied from the GPU if it is there."""
    return np.asarray(x) if array_module(x) is np else _cupy().asnumpy(x)


def unflatten(flat: Array, arrays: Iterable[Array]) -> list[Array]:
    """Consecutive elements of ``flat`` as views in the shapes of ``arrays``; there may be more elements."""
    views, start = [], 0
    for array in arrays:
        views.append(flat[start : start + array.size].reshape(array.shape))
        start += array.size
    return views


def use_gpu_of(local_rank: int) -> None:
    """Make GPU ``local_rank`` (modulo the number of GPUs) this thread's current one."""
    runtime = _cupy().cuda.runtime
    runtime.setDevice(local_rank % runtime.getDeviceCount())


def cuda_problem() -> str | None:
    """Why the GPU cannot be used, with the way out; None when it can."""
    try:
        cupy = _cupy()
    except ImportError:
        return "CuPy is not installed; pip install -e '.[cuda12]' or '.[cuda13]', or use --device numpy"
    if not cupy.cuda.is_available():
        return "CuPy finds no CUDA device (no GPU or no driver); use --device numpy"
    return None


def _cupy() -> ModuleType:
    import cupy  # pyright: ignore[reportMissingImports]

    return cupy
