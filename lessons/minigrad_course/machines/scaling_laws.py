"""How much faster ranks are where a part of the work cannot be shared: the laws of Amdahl and Gustafson.

Lecture section: synchronous data parallelism. Lesson: 06_data_parallel. A *serial* part takes every rank the
same time, however many ranks there are; the rest of the work is divided among them.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TypeVar

Number = TypeVar("Number", float, Fraction)


def amdahl(serial: Number, ranks: int) -> Number:
    """The speed-up of a fixed amount of work (strong scaling), never above 1 / ``serial``.

    ``serial`` is the serial part's share of the time that *one* rank takes. Amdahl 1967.
    """
    return 1 / (serial + (1 - serial) / ranks)


def gustafson(serial: Number, ranks: int) -> Number:
    """The speed-up where each rank brings its own work (weak scaling), against one rank with all of it.

    ``serial`` is the serial part's share of the time that *the ranks* take. Gustafson 1988.
    """
    return ranks - serial * (ranks - 1)


def karp_flatt(speedup: Number, ranks: int) -> Number:
    """The serial share that by Amdahl's law explains a measured speed-up of fixed work; Karp and Flatt 1990.

    Raises ValueError for one rank, whose speed-up says nothing.
    """
    if ranks < 2:
        raise ValueError(f"a serial share needs the speed-up of 2 ranks or more, got {ranks}")
    return (ranks / speedup - 1) / (ranks - 1)
