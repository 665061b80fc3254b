"""What a picture of a tape tells of its entries: names and shapes, without arrays that backward releases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from weakref import ref

from ..tensor_base import TensorBase
from .ends import ends_of

MOST_ENTRIES = 24


Inputs = list[tuple[int, tuple[int, ...]]]
"""The index and the shape of each input of an op."""


class TapeOutline:
    """The first and the last entries of a tape, MOST_ENTRIES at most, and how many there are.

    ``rows`` has them by their index: a weak reference to a leaf, or the inputs of an op; ``ops`` has the
    ops' names by index. Backward makes one in a few microseconds, however long the tape is.
    """

    __slots__ = ("count", "leaves", "ops", "rows")

    def __init__(self, entries: Sequence[Any], leaves: int, ops: Mapping[int, str]):
        self.count, self.leaves, self.ops = len(entries), leaves, ops
        self.rows: dict[int, ref[TensorBase] | Inputs] = {}
        for i in ends_of(self.count, MOST_ENTRIES):
            entry = entries[i]
            is_leaf = isinstance(entry, TensorBase)
            self.rows[i] = ref(entry) if is_leaf else [part[:2] for part in entry]
