"""Groups and backgrounds of a communicator, which its ranks make and free together.

MPI frees a communicator only where all its ranks free it together, in the same order, and Python drops an
object on each rank at another time. So a dropped part is kept until no rank uses it any more; the ranks
exchange this whenever they make the next part together.
"""

from __future__ import annotations

import gc
import weakref
from abc import ABC, abstractmethod
from typing import Any, Self

import numpy as np

CROWDED = 16  # parts; from this number on cycles of references are searched for unused ones


class Part(ABC):
    """A group or background of ``whole``, a communicator; it is unused once nothing refers to it."""

    whole: Any = None
    number = 0

    def part_of(self, whole: Any) -> Self:
        self.whole, self.number = whole, whole.parts.add(self)
        return self

    @abstractmethod
    def close(self) -> None:
        """Free it, on all its ranks together; may be called again."""

    def __del__(self) -> None:
        whole, self.whole = self.whole, None
        if whole is not None:
            whole.parts.unused[self.number] = self  # kept, because nothing may be freed now


class Parts:
    """The parts of one communicator, by numbers that are the same on all its ranks."""

    def __init__(self) -> None:
        self.count, self.crowded = 0, CROWDED
        self.all: dict[int, weakref.ref[Part]] = {}
        self.unused: dict[int, Part] = {}

    def add(self, part: Part) -> int:
        """The number of a new part."""
        self.count += 1
        self.all[self.count] = weakref.ref(part)
        return self.count

    def idle(self) -> np.ndarray:
        """A flag for each part, set if this rank does not use it; then a set one, so that there is one."""
        if len(self.all) >= self.crowded:
            gc.collect()
            self.crowded = 2 * max(len(self.all) - len(self.unused), CROWDED // 2)
        return np.array([*(number in self.unused for number in self.all), True], np.uint8)

    def free(self, idle: np.ndarray) -> None:
        """Close, in order, the parts whose flag is set, and forget them."""
        for number in [number for number, flag in zip(self.all, idle[:-1], strict=True) if flag]:
            self.unused.pop(number).close()
            del self.all[number]

    def close(self) -> None:
        """Close all parts, in order."""
        for number, ref in self.all.items():
            part = ref() or self.unused.get(number)
            if part is not None:
                part.close()
