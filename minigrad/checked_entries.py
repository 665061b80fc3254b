"""The entries of a tape that notices when an array it will need is changed.

A tensor shares the memory of the array it was made of, and a tape holds arrays, not copies: where one is
changed between forward and backward, the gradient is that of something else. To notice it takes a checksum of
each array that a pullback holds, so it is done only where MINIGRAD_CHECK asks for it.
"""

from __future__ import annotations

import zlib
from typing import Any

from .device import Array, to_host
from .environment import variable
from .memory import retained_arrays


def checks(what: str) -> bool:
    """Whether the variable MINIGRAD_CHECK asks for ``what``; raises ValueError for a value it cannot have."""
    return variable("MINIGRAD_CHECK") in (what, "all")


class CheckedEntries(list):
    """Entries that are taken back as ``Changed`` where an array that their pullbacks hold is another."""

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


class Changed:
    """Stands for an entry whose gradient would be wrong; says so when the walk needs it."""

    def __init__(self, entry: list[Any], array: Array):
        self.entry, self.array = entry, array

    def record(self, entries: Any) -> None:
        """Raise RuntimeError, naming the op; the walk calls it where others write entries."""
        raise RuntimeError(
            f"an array of {self.array.dtype}{self.array.shape} that {op_of(self.entry)} needs for its "
            "gradient was changed between forward and backward; change parameters, inputs and targets after "
            "backward, or compute with a copy"
        )


def op_of(entry: list[Any]) -> str:
    """The name of the op that left ``entry``: that of the function that its pullbacks stand in."""
    names = [getattr(pullback, "__qualname__", "") for *_, pullback in entry]
    inside = [name.split(".")[0] for name in names if ".<locals>" in name]
    return inside[0] if inside else type(entry[0][-1]).__module__.split(".")[-1]


def checksum(array: Array) -> int:
    return zlib.crc32(to_host(array).tobytes())
