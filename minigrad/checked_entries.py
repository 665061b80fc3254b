"""The entries of a tape that detects changes to the arrays that it needs.

A tensor shares the memory of the array it was made of, and a tape holds arrays, not copies. If an array
changes between forward and backward, the gradient is wrong. Detecting this takes a checksum of each array
that a pullback holds, so it is done only where MINIGRAD_CHECK requests it.
"""

from __future__ import annotations

import re
import zlib
from typing import Any

from .device import Array, to_host
from .environment import variable
from .memory import retained_arrays


def checks(what: str) -> bool:
    """Whether MINIGRAD_CHECK is set to ``what`` or "all"; raises ValueError for an unknown value."""
    return variable("MINIGRAD_CHECK") in (what, "all")


class CheckedEntries(list):
    """Entries; ``pop`` returns a ``Changed`` in place of an entry whose pullbacks hold a changed array."""

    def __init__(self) -> None:
        super().__init__()
        self.checksums: list[list[tuple[Array, int]]] = []

    def append(self, entry: Any) -> None:
        super().append(entry)
        pullbacks = [pullback for *_, pullback in entry] if isinstance(entry, list) else []
        self.checksums.append([(array, checksum(array)) for array in retained_arrays(pullbacks)])

    def pop(self, *place: Any) -> Any:
        entry = super().pop(*place)
        for array, before in self.checksums.pop(*place):
            if checksum(array) != before:
                return Changed(entry, array)
        return entry


FORM = re.compile("_(?:by|in|at)_")  # what follows tells a form of an op from another


class Changed:
    """Replaces an entry whose gradient would be wrong, and raises when the walk needs it."""

    def __init__(self, entry: list[Any], array: Array):
        self.entry, self.array = entry, array

    def record(self, entries: Any) -> None:
        """Raise RuntimeError, naming the op; a segment appends its entries here."""
        op = op_of([pullback for *_, pullback in self.entry])
        raise RuntimeError(
            f"an array of {self.array.dtype}{self.array.shape} that {op} needs for its "
            "gradient was changed between forward and backward; change parameters, inputs and targets after "
            "backward, or compute with a copy"
        )


def op_of(pullbacks: list[Any]) -> str:
    """The name of the op that made these ``pullbacks``: of the function that defines them.

    In ``minigrad.ops`` the functions ``gather_by_loops`` and ``gather_in_one_pass`` are forms of ``gather``,
    and ``by_loops`` or ``by_taps`` is a form of the op that its module is named after.
    """
    for pullback in pullbacks:
        outer, inside, _ = getattr(pullback, "__qualname__", "").rpartition(".<locals>.")
        function = outer.rpartition(".<locals>.")[2]
        if inside:
            if not pullback.__module__.startswith("minigrad.ops."):
                return function
            module = pullback.__module__.rpartition(".")[2]
            return module if function.startswith("by_") else FORM.split(function)[0]
    return type(pullbacks[0]).__module__.split(".")[-1]


def checksum(array: Array) -> int:
    return zlib.crc32(to_host(array).tobytes())
