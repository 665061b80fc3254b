"""The GPU on which a thread computes, and the work that it has not finished; nothing without CuPy.

A GPU does later what a program asks for, in the order of a stream. Each thread has a current GPU, at first
GPU 0, and by default all threads have the same stream. Lecture section: GPU against CPU.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from minigrad.device import loaded_cuda

PER_THREAD = "CUPY_CUDA_PER_THREAD_DEFAULT_STREAM"


def synchronize() -> None:
    """Wait until the GPU has done all that this thread asked for."""
    if (module := loaded_cuda()) is not None:
        module.get_current_stream().synchronize()


def current_gpu() -> AbstractContextManager[Any]:
    """A context in which any thread computes on the GPU that is this thread's now."""
    if (module := loaded_cuda()) is None:
        return nullcontext()
    check_one_stream()
    return module.Device()


def check_one_stream() -> None:
    """Raise RuntimeError if each thread has a stream of its own.

    Then a thread could read an array that another one passed on before it is computed.
    """
    if os.environ.get(PER_THREAD, "0") != "0":
        raise RuntimeError(
            f"{PER_THREAD}={os.environ[PER_THREAD]} gives each thread a stream of its own, but threads that "
            "pass on arrays need the same one; unset it"
        )
