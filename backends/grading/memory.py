"""Arrays that the judge and a player both have: what one writes, the other has after the next message.

Arrays keep what they have in common: views of one memory are views of one memory on the other side too, and
an array that comes home is the one that was sent. So a check may ask of a result whose memory it is, and of
an input whether it was changed, as if both were in one process.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np

from .frame import MOST, Malformed, bounded

DTYPE = re.compile(r"[<>|=]?([biufcSUV]\d{1,4}|[mM]8(\[\d{0,9}[a-zA-Z]{1,2}\])?)")


class Block:
    """The memory of one array that owns it, ``seen`` as the other side has it; None where it has it not."""

    def __init__(self, owner: np.ndarray, forget: Any, seen: bytes | None):
        self.owner, self.key, self.seen = weakref.ref(owner, forget), id(owner), seen
        self.views: dict[Any, weakref.ref[np.ndarray]] = {}

    def view(self, layout: tuple[Any, ...]) -> np.ndarray | None:
        """The array of that layout, if it is still there and as it was."""
        x = self.views[layout]() if layout in self.views else None
        return x if x is not None and layout == (*shown(x), layout[3]) else None


class Memory:
    """One side's blocks by number; ``first`` is 0 on one side and 1 on the other, which number in twos."""

    def __init__(self, first: int):
        self.first, self.next = first, first
        self.blocks: dict[int, Block] = {}
        self.numbers: dict[int, int] = {}  # by the owner's id
        self.dropped: list[int] = []  # of which the other side does not know yet
        self.held: list[np.ndarray] = []  # alive until the other side has answered

    # Sending

    def describe(self, x: np.ndarray) -> list[Any]:
        """The array as a place in a block, which goes along with the next message."""
        owner = owner_of(x)
        if not (owner.flags.c_contiguous or owner.flags.f_contiguous or flat(owner) is not None):
            x = owner = x.copy()
        number = self.numbers.get(id(owner))
        if number is None:
            number, self.next = self.next, self.next + 2
            self.add(number, owner, None)
        layout = (*shown(x), address(x) - address(owner))
        self.blocks[number].views[layout] = weakref.ref(x)
        dtype, shape, strides, offset = layout
        self.held.append(owner)
        return [number, dtype, list(shape), list(strides), offset, bool(x.flags.writeable)]

    def outgoing(self) -> tuple[list[Any], bytes]:
        """New and changed blocks and dropped ones, and the bytes; raises ValueError for too many."""
        self.held = [owner for block in list(self.blocks.values()) if (owner := block.owner()) is not None]
        now = [
            (number, contents(owner))
            for owner in self.held
            if (number := self.numbers.get(id(owner))) is not None
        ]
        told = [(number, data) for number, data in now if data != self.blocks[number].seen]
        try:
            content = bounded(b"".join(data for _, data in told))
        except ValueError:
            for number in [number for number, block in self.blocks.items() if block.seen is None]:
                self.numbers.pop(self.blocks.pop(number).key, None)  # the other side has not heard of it
            raise
        for number, data in told:
            self.blocks[number].seen = data
        dropped = [self.dropped.pop() for _ in range(len(self.dropped))]
        return [[[number, len(data)] for number, data in told], dropped], content

    # Receiving

    def incoming(self, sync: Any, content: bytes) -> None:
        """Take what the other side tells; raises Malformed."""
        told, dropped = sync
        place = 0
        for number, size in told:
            if type(number) is not int or type(size) is not int or not 0 <= size <= len(content) - place:
                raise Malformed(f"a block {number!r} of {size!r} bytes")
            data, place = content[place : place + size], place + size
            if number in self.blocks:
                self.write(self.blocks[number], data)
            elif number % 2 == self.first or number < 0:
                raise Malformed(f"block {number} is not the other side's")
            else:
                owner = np.frombuffer(bytearray(data), np.uint8).copy()
                self.held.append(owner)
                self.add(number, owner, data)
        if place != len(content):
            raise Malformed(f"{len(content) - place} bytes belong to no block")
        for number in dropped:
            if (block := self.blocks.pop(number, None)) is not None:
                self.numbers.pop(block.key, None)

    def write(self, block: Block, data: bytes) -> None:
        owner = block.owner()
        if owner is None or owner.nbytes != len(data):
            raise Malformed("a block of another size")
        locked = not owner.flags.writeable
        if locked and not owner.flags.owndata:
            raise Malformed("memory that cannot be written to was changed")
        if locked:
            owner.flags.writeable = True
        found = flat(owner)
        assert found is not None
        found[:] = np.frombuffer(data, np.uint8)
        if locked:
            owner.flags.writeable = False
        block.seen = data

    def array(self, place: Any) -> np.ndarray:
        """The array that ``describe`` has described; raises Malformed."""
        number, dtype, shape, strides, offset, writeable = place
        block = self.blocks[number]
        owner = block.owner()
        if owner is None or not DTYPE.fullmatch(dtype) or type(writeable) is not bool or len(shape) > 32:
            raise Malformed("an array in no block")
        if not all(type(n) is int for n in (*shape, *strides, offset)) or offset < 0:
            raise Malformed("sizes that are no whole numbers")
        layout = (dtype, tuple(shape), tuple(strides), offset)
        if (x := block.view(layout)) is not None and x.flags.writeable == writeable:
            return x
        kind = np.dtype(dtype)
        elements = kind.itemsize
        for n in shape:
            elements *= n
        if elements > MOST or min(shape, default=0) < 0:
            raise Malformed(f"an array of shape {shape}")
        if elements == 0:  # of no memory: it begins where its block begins
            x = np.ndarray(tuple(shape), kind, flat(owner))
        else:
            x = np.ndarray(tuple(shape), kind, flat(owner), offset, tuple(strides))
        if not writeable:
            x.flags.writeable = False
        block.views[layout] = weakref.ref(x)
        return x

    def release(self) -> None:
        """The message is read: from now on its arrays live as long as somebody uses them."""
        self.held = []

    # What both are made of

    def add(self, number: int, owner: np.ndarray, seen: bytes | None) -> None:
        def forget(_: Any, key: int = id(owner)) -> None:
            if self.numbers.get(key) == number:
                del self.numbers[key]
            gone = self.blocks.pop(number, None)
            if gone is not None and gone.seen is not None:
                self.dropped.append(number)

        self.blocks[number] = Block(owner, forget, seen)
        self.numbers[id(owner)] = number


def owners(x: np.ndarray) -> Iterator[np.ndarray]:
    """The array, and the arrays whose memory it is a view of, the owner last."""
    at: Any = x
    while at is not None:
        if isinstance(at, np.ndarray):
            yield at
        at = at.obj if isinstance(at, memoryview) else getattr(at, "base", None)


def owner_of(x: np.ndarray) -> np.ndarray:
    *_, last = owners(x)
    return last


def address(x: np.ndarray) -> int:
    return x.__array_interface__["data"][0]


def shown(x: np.ndarray) -> tuple[str, tuple[int, ...], tuple[int, ...]]:
    return x.dtype.str, x.shape, x.strides


def flat(owner: np.ndarray) -> np.ndarray | None:
    """The bytes of an owner, as a view of it; None where they have gaps."""
    line = owner if owner.flags.c_contiguous else owner.T if owner.flags.f_contiguous else owner.ravel("K")
    if not owner.nbytes:
        return np.empty(0, np.uint8)
    return line.reshape(-1).view(np.uint8) if line.nbytes == owner.nbytes and shares(line, owner) else None


def shares(x: np.ndarray, y: np.ndarray) -> bool:
    return np.may_share_memory(x, y)


def contents(owner: np.ndarray) -> bytes:
    if owner.flags.c_contiguous:
        return owner.tobytes()
    found = flat(owner)
    return b"" if found is None else found.tobytes()
