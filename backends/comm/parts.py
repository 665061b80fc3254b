"""What the ranks of a communicator made of it together, and free together: groups, and backgrounds.

MPI frees a communicator only where all its ranks ask for it, in the same order, and Python drops an object on
each rank at another time. So what a rank drops lives on, unused, until no rank uses it any more: the ranks
ask one another when they come together to make the next.
"""

from __future__ import annotations

import gc
import weakref
from abc import ABC, abstractmethod
from typing import Any, Self

import numpy as np

CROWDED = 16  # parts from which on it pays to look for those that only a cycle of references holds


class Part(ABC):
    """A part of ``whole``, a communicator; it is unused where nothing refers to it any more."""

    whole: Any = None
    number = 0
    closed = False

    def part_of(self, whole: Any) -> Self:
        self.whole, self.number = whole, whole.parts.add(self)
        return self

    @abstractmethod
    def close(self) -> None:
        """Free it, on all its ranks together; may be called again."""

    def __del__(self) -> None:
        whole, self.whole = self.whole, None
        if whole is not None:
            whole.parts.unused[self.number] = self  # it lives on, and nothing is freed now


class Parts:
    """The parts of one communicator, by numbers that are the same on all its ranks."""

    def __init__(self) -> None:
        self.made, self.crowded = 0, CROWDED
        self.all: dict[int, weakref.ref[Part]] = {}
        self.unused: dict[int, Part] = {}

    def add(self, part: Part) -> int:
        """The number of a new part."""
        self.made += 1
        self.all[self.made] = weakref.ref(part)
        return self.made

    def idle(self) -> np.ndarray:
        """A flag for each part that this rank has no use for; a set one behind them, so that there is one."""
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
