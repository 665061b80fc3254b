"""The arrays that a closure holds: what a tape costs in memory.

Lecture section: data lifetimes. Lesson: 03_memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np

from .device import Array, on_gpu


def base_of(a: Array) -> Array:
    """The array that owns ``a``'s memory."""
    while isinstance(a.base, (np.ndarray, type(a))):
        a = a.base
    return a


def retained_arrays(root: Any) -> Iterator[Array]:
    """Every array reachable from ``root`` through closures, containers and callable objects."""
    stack, visited = [root], set()
    while stack:
        x = stack.pop()
        if id(x) in visited:
            continue
        visited.add(id(x))
        if isinstance(x, np.ndarray) or on_gpu(x):
            yield x
        elif isinstance(x, list | tuple | set):
            stack.extend(x)
        elif isinstance(x, dict):
            stack.extend(x.values())
        elif callable(x) and not isinstance(x, type):
            for cell in getattr(x, "__closure__", None) or ():
                with suppress(ValueError):  # an empty cell
                    stack.append(cell.cell_contents)
            names = ("__self__", "__defaults__", "func", "args", *getattr(type(x), "__slots__", ()))
            stack.extend(getattr(x, name) for name in names if hasattr(x, name))
            stack.extend(getattr(x, "__dict__", {}).values())
