"""Arrays that exist in the judge and in a worker: each message carries the changes of one side to the other.

Views of the same memory stay so on the other side, and an array that is sent back is the original one. So a
check can test whether a result shares memory with an input, or whether an input changed, as in one process.
"""

from __future__ import annotations

import math
import re
import weakref
from typing import Any

import numpy as np

from .messages import MAX_BYTES, MalformedMessage, check_size

DTYPE = re.compile(r"[<>|=]?([biufcSUV]\d{1,4}|[mM]8(\[\d{0,9}[a-zA-Z]{1,2}\])?)")


class Block:
    """The memory of an array that owns it; ``content`` is the other side's copy, None without one."""

    def __init__(self, owner: np.ndarray, on_delete: Any, content: bytes | None):
        self.owner, self.key, self.content = weakref.ref(owner, on_delete), id(owner), content
        self.views: dict[Any, weakref.ref[np.ndarray]] = {}

    def view(self, layout: tuple[Any, ...]) -> np.ndarray | None:
        """The array of that layout, if it still exists and still has that layout."""
        x = self.views[layout]() if layout in self.views else None
        return x if x is not None and layout == (*layout_of(x), layout[3]) else None


class SharedArrays:
    """One side's blocks by number; one side numbers its new blocks 0, 2, 4 ..., the other 1, 3, 5 ..."""

    def __init__(self, parity: int):
        self.parity, self.next = parity, parity
        self.blocks: dict[int, Block] = {}
        self.numbers: dict[int, int] = {}  # by the owner's id
        self.deleted: list[int] = []  # the other side does not know it yet
        self.alive: list[np.ndarray] = []  # owners that must live until the other side has answered

    # Sending

    def encode(self, x: np.ndarray) -> list[Any]:
        """The array as a place in a block, whose content goes with the next message."""
        owner = owner_of(x)
        if not (owner.flags.c_contiguous or owner.flags.f_contiguous or bytes_view(owner) is not None):
            x = owner = x.copy()
        number = self.numbers.get(id(owner))
        if number is None:
            number, self.next = self.next, self.next + 2
            self.add(number, owner, None)
        layout = (*layout_of(x), address(x) - address(owner))
        self.blocks[number].views[layout] = weakref.ref(x)
        dtype, shape, strides, offset = layout
        self.alive.append(owner)
        return [number, dtype, list(shape), list(strides), offset, bool(x.flags.writeable)]

    def changes(self) -> tuple[list[Any], bytes]:
        """Sizes of new and changed blocks, deleted blocks, and the bytes; raises ValueError for too many."""
        owners = [(number, block.owner()) for number, block in list(self.blocks.items())]
        alive = {number: owner for number, owner in owners if owner is not None}
        self.alive = [*alive.values()]
        contents = [
            (number, view.tobytes())
            for number, owner in alive.items()
            if (view := bytes_view(owner)) is not None
        ]
        changed = [(number, data) for number, data in contents if data != self.blocks[number].content]
        try:
            content = check_size(b"".join(data for _, data in changed))
        except ValueError:
            for number in [number for number, block in self.blocks.items() if block.content is None]:
                self.numbers.pop(self.blocks.pop(number).key, None)  # the other side has not heard of it
            raise
        for number, data in changed:
            self.blocks[number].content = data
        deleted = [self.deleted.pop() for _ in range(len(self.deleted))]
        return [[[number, len(data)] for number, data in changed], deleted], content

    # Receiving

    def apply(self, changes: Any, content: bytes) -> None:
        """Apply the other side's changes; raises MalformedMessage."""
        changed, deleted = changes
        start = 0
        for number, size in changed:
            if type(number) is not int or type(size) is not int or not 0 <= size <= len(content) - start:
                raise MalformedMessage(f"a block {number!r} of {size!r} bytes")
            data, start = content[start : start + size], start + size
            if number in self.blocks:
                self.write(self.blocks[number], data)
            elif number % 2 == self.parity or number < 0:
                raise MalformedMessage(f"block {number} is not the other side's")
            else:
                owner = np.frombuffer(bytearray(data), np.uint8).copy()
                self.alive.append(owner)
                self.add(number, owner, data)
        if start != len(content):
            raise MalformedMessage(f"{len(content) - start} bytes belong to no block")
        for number in deleted:
            if (block := self.blocks.pop(number, None)) is not None:
                self.numbers.pop(block.key, None)

    def write(self, block: Block, data: bytes) -> None:
        owner = block.owner()
        if owner is None or owner.nbytes != len(data):
            raise MalformedMessage("a block of another size")
        locked = not owner.flags.writeable
        if locked and not owner.flags.owndata:
            raise MalformedMessage("memory that cannot be written to was changed")
        if locked:
            owner.flags.writeable = True
        target = bytes_view(owner)
        assert target is not None
        target[:] = np.frombuffer(data, np.uint8)
        if locked:
            owner.flags.writeable = False
        block.content = data

    def decode(self, place: Any) -> np.ndarray:
        """The array that ``encode`` encoded; raises MalformedMessage."""
        number, dtype, shape, strides, offset, writeable = place
        block = self.blocks[number]
        owner = block.owner()
        if owner is None or not DTYPE.fullmatch(dtype) or type(writeable) is not bool or len(shape) > 32:
            raise MalformedMessage("an array in no block")
        if not all(type(n) is int for n in (*shape, *strides, offset)) or offset < 0:
            raise MalformedMessage("sizes that are no whole numbers")
        layout = (dtype, tuple(shape), tuple(strides), offset)
        if (x := block.view(layout)) is not None and x.flags.writeable == writeable:
            return x
        kind = np.dtype(dtype)
        nbytes = math.prod(shape, start=kind.itemsize)
        if nbytes > MAX_BYTES or min(shape, default=0) < 0:
            raise MalformedMessage(f"an array of shape {shape}")
        if nbytes == 0:  # it has no memory: it begins where its block begins
            x = np.ndarray(tuple(shape), kind, bytes_view(owner))
        else:
            x = np.ndarray(tuple(shape), kind, bytes_view(owner), offset, tuple(strides))
        if not writeable:
            x.flags.writeable = False
        block.views[layout] = weakref.ref(x)
        return x

    def add(self, number: int, owner: np.ndarray, content: bytes | None) -> None:
        def on_delete(_: Any, key: int = id(owner)) -> None:
            if self.numbers.get(key) == number:
                del self.numbers[key]
            block = self.blocks.pop(number, None)
            if block is not None and block.content is not None:
                self.deleted.append(number)

        self.blocks[number] = Block(owner, on_delete, content)
        self.numbers[id(owner)] = number


def owner_of(x: np.ndarray) -> np.ndarray:
    """The array whose memory ``x`` is a view of; ``x`` itself where it owns its memory."""
    owner, base = x, x.base
    while base is not None:
        owner = base if isinstance(base, np.ndarray) else owner
        base = base.obj if isinstance(base, memoryview) else getattr(base, "base", None)
    return owner


def address(x: np.ndarray) -> int:
    return x.__array_interface__["data"][0]


def layout_of(x: np.ndarray) -> tuple[str, tuple[int, ...], tuple[int, ...]]:
    return x.dtype.str, x.shape, x.strides


def bytes_view(owner: np.ndarray) -> np.ndarray | None:
    """The bytes of an array that owns its memory, as a view of it; None where the memory has gaps."""
    x = owner if owner.flags.c_contiguous else owner.T if owner.flags.f_contiguous else owner.ravel("K")
    if not owner.nbytes:
        return np.empty(0, np.uint8)
    whole = x.nbytes == owner.nbytes and np.may_share_memory(x, owner)
    return x.reshape(-1).view(np.uint8) if whole else None
