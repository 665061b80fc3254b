"""All-reduce in memory that the ranks of one machine share: each sums its share for all, no message is sent.

Lecture section: synchronous data parallelism. Lesson: 05_messages.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from minigrad.device import Array, array_module, to_host

from .collectives import allreduce
from .protocol import Comm
from .shared import shared_memory

TEXT = 64  # bytes of each rank that say what it brings
SLOT = 1 << 19  # bytes of each rank through which arrays that lie elsewhere pass: half a cache
LARGE = 1 << 16  # bytes from which the window beats MPI's own all-reduce (benchmarks/messages.py)
BLOCK = 1 << 18  # bytes summed at a time, so that a sum is still in the cache when it is copied to all


class WindowAllreduce:
    """The sum over all ranks of ``comm`` in memory they share, in rank order: the bits of the naive form.

    Arrays made by ``array`` are summed where they lie, and returned; any other is copied in and out, and
    left alone. Where the ranks do not share a machine, or memory, the transport's own all-reduce is called.
    All ranks construct and call it together: ``DataParallel(comm, allreduce=WindowAllreduce(comm))``.
    """

    def __init__(self, comm: Comm):
        self.comm: Any = comm
        self.memory = shared_memory(comm, SLOT + TEXT)
        self.made = 0  # arrays
        if self.memory is not None:
            self.slots = [part[:SLOT] for part in self.memory.parts]
            self.brought = [part.data[SLOT : SLOT + TEXT] for part in self.memory.parts]

    def array(self, shape: int | Sequence[int], dtype: Any = np.float32) -> np.ndarray:
        """Zeros in shared memory, to be filled and summed without a copy.

        All ranks must call this together, with the same shape.
        """
        nbytes = bytes_of(shape, dtype)
        if self.memory is None or nbytes == 0:
            return np.zeros(shape, dtype)
        self.made += 1
        parts = self.comm.share(nbytes).parts
        return np.asarray(Place(self, parts, self.made))[:nbytes].view(dtype).reshape(shape)

    def __call__(self, comm: Comm, x: Array) -> Array:
        """The sum of ``x`` over all ranks; ValueError, naming two ranks that differ, unless all agree."""
        if self.memory is None:
            return allreduce(comm, x)
        host = np.asarray(to_host(x), order="C")
        parts, *place = self.find(host)
        brought = described(host.dtype, host.shape, *place)
        if parts is not None:
            self.meet(brought)
            self.sum(parts)
            self.meet()
            return x
        total = np.empty_like(host)
        given, found = host.reshape(-1), total.reshape(-1)
        step = SLOT // host.itemsize
        slots = [slot[: step * host.itemsize].view(host.dtype) for slot in self.slots]
        for start in range(0, max(1, host.size), step):
            part = given[start : start + step]
            mine = slots[self.comm.rank][: part.size]
            np.copyto(mine, part)
            self.meet(brought if start == 0 else None)
            self.sum([slot[: part.size] for slot in slots])
            self.meet()
            np.copyto(found[start : start + step], mine)
        return array_module(x).asarray(total)

    def sum(self, parts: list[np.ndarray]) -> None:
        """Add up this rank's share of all ``parts``, and write it to all of them."""
        n, rank, size = parts[0].size, self.comm.rank, self.comm.size
        first, last = n * rank // size, n * (rank + 1) // size
        step = max(1, BLOCK // parts[0].itemsize)
        for start in range(first, last, step):
            total, *others = (part[start : min(start + step, last)] for part in parts)
            for other in others:
                total += other
            for other in others:
                other[...] = total

    def owns(self, x: Array) -> bool:
        """Whether ``x`` is an array made by ``array``, or a part of one."""
        return type(x) is np.ndarray and self.find(x)[0] is not None

    def find(self, x: np.ndarray) -> tuple[list[np.ndarray] | None, int, int]:
        """All ranks' parts that correspond to ``x`` where it lies in a window; the window and the offset."""
        base: Any = x
        while type(base) is np.ndarray:
            base = base.base
        if not isinstance(base, Place) or base.window is not self:
            return None, -1, 0
        offset = address_of(x) - base.address
        here = slice(offset, offset + x.nbytes)
        return [part[here].view(x.dtype) for part in base.parts], base.number, offset

    def meet(self, brought: bytes | None = None) -> None:
        """Wait for all ranks to come here; what they bring must be the same.

        Two meetings enclose each sum: what was brought is looked at between them, and changed after them.
        """
        assert self.memory is not None
        rank = self.comm.rank
        if brought is not None:
            self.brought[rank][:] = brought
        self.memory.meet("to all-reduce")
        if brought is not None:
            for other in self.brought:
                if other != self.brought[rank]:
                    unlike = [bytes(text) for text in self.brought]
                    self.meet()
                    refuse_unlike(unlike, self.comm.members)


class Place:
    """What lies below an array of a window, and lives as long: it holds all ranks' parts of the memory."""

    def __init__(self, window: WindowAllreduce, parts: list[np.ndarray], number: int):
        self.window, self.parts, self.number = window, parts, number
        self.__array_interface__ = parts[window.comm.rank].__array_interface__
        self.address: int = self.__array_interface__["data"][0]


def array_for(comm: Any, shape: int | Sequence[int], dtype: Any) -> np.ndarray:
    """See ``MPIComm.array``; ``comm.window`` sums what is made here, but for small or ordinary arrays."""
    if bytes_of(shape, dtype) >= LARGE:
        try:
            own: Any = weakref.proxy(comm)  # which owns the window, and must not be held by it
            comm.window = comm.window or WindowAllreduce(own)
            return comm.window.array(shape, dtype)
        except RuntimeError:
            pass  # too little shared memory, which all ranks find alike
    return np.zeros(shape, dtype)


def bytes_of(shape: int | Sequence[int], dtype: Any) -> int:
    return int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize


@lru_cache(1024)
def described(dtype: np.dtype, shape: tuple[int, ...], window: int, offset: int) -> bytes:
    """What a rank brings to a sum; the same on all ranks, where they agree."""
    place = "" if window < 0 else f" at byte {offset} of window {window}"
    return f"{dtype}{shape}{place}".encode()[:TEXT].ljust(TEXT)


def address_of(x: np.ndarray) -> int:
    return x.__array_interface__["data"][0]


def check_same(comm: Any, what: str) -> None:
    """Raise ValueError, naming two ranks that differ, unless all of an MPIComm say the same ``what``."""
    mine = np.frombuffer(what.encode()[:TEXT].ljust(TEXT), np.uint8)
    all_of_them = np.empty((comm.size, TEXT), np.uint8)
    request = comm.mpi.Iallgather(mine, all_of_them)
    comm.wait(request.Test, f"for all ranks to all-reduce {what}", comm.members)
    refuse_unlike(list(all_of_them), comm.members)


def refuse_unlike(brought: Sequence[Any], members: list[int]) -> None:
    """Raise ValueError, naming two ranks that differ, unless all ranks brought the same."""
    texts = [bytes(part) for part in brought]
    for rank, text in enumerate(texts):
        if text != texts[0]:
            one, other = texts[0].decode().strip(), text.decode().strip()
            raise ValueError(
                f"rank {members[0]} has {one}, rank {members[rank]} has {other} in one all-reduce; "
                "make all ranks pass the same shape and dtype"
            )
