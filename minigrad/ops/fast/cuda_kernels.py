"""Kernels in CUDA C++ from the files of this folder, each compiled once for a type of numbers.

Lecture section: GPU against CPU. Lesson: 04_gpu, by ``loss_kernels.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ...device import Array, compiles_cuda, cuda_module
from . import elementwise_kernels

C_TYPES = {"f": "float", "d": "double", "l": "long long", "q": "long long", "i": "int", "B": "unsigned char"}
BLOCKS = 264  # two for each multiprocessor of an H100


def can_take(*arrays: Array) -> bool:
    """Whether all are on a GPU, of one dtype, float32 or float64, not empty, and numbered by 31 bits."""
    sizes = elementwise_kernels.can_take(*arrays) and [x.size for x in arrays]
    return bool(sizes) and min(sizes) > 0 and max(sizes) < 1 << 31 and compiles_cuda()


@cache
def source(file: str) -> str:
    return Path(__file__).with_name(file).read_text(encoding="utf-8")


@cache
def kernel(file: str, name: str, **macros: object) -> Callable[..., None]:
    return cuda_module(source(file), **macros).get_function(name)


def launch(
    file: str, name: str, grid: tuple[int, ...], threads: int, *arguments: Any, dtype: Any, **macros: object
) -> None:
    """Call the kernel ``name`` of a ``file``, whose T is ``dtype``; None is an array that is not there."""
    numbers = {int: np.int32, bool: np.int32, float: np.float64}
    values = (0 if x is None else numbers.get(type(x), lambda x: x)(x) for x in arguments)
    kernel(file, name, T=C_TYPES[dtype.char], **macros)(grid, (threads,), tuple(values))


def ceil(a: int, b: int) -> int:
    return -(-a // b)
