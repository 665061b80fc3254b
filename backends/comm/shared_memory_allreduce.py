"""All-reduce in shared memory: each rank of a machine sums its share of the elements, without a message.

Lecture section: synchronous data parallelism.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any
from zlib import crc32

import numpy as np

from minigrad.device import Array, array_module

from .communicator import Communicator
from .pinned_buffers import PinnedBuffers
from .shared_memory import SharedMemory

TEXT = 64  # bytes of each rank that describe its array
SLOT = 1 << 19  # bytes of each rank through which other arrays are copied: half a cache
LARGE = 1 << 16  # bytes from which this beats MPI's own all-reduce (benchmarks/messages.py)
BLOCK = 1 << 18  # bytes summed at a time, so that a sum is still in the cache when it is copied to all


class SharedMemoryAllreduce:
    """The sum over all ranks of ``comm`` in shared memory, in rank order, so with the bits of the naive form.

    Arrays made by ``array``, of this object or of another one of the same ranks, are summed in place and
    returned; others are copied and stay unchanged. If the ranks cannot share memory, the communicator's own
    all-reduce is used instead. All ranks construct and call it together. ``MPIComm`` has one of its own.
    """

    def __init__(self, comm: Communicator):
        self.comm, self.pinned = comm, PinnedBuffers()
        self.memory = comm.share(SLOT + TEXT)
        if self.memory is not None:
            self.slots = [part[:SLOT] for part in self.memory.parts]
            self.texts = [part.data[SLOT : SLOT + TEXT] for part in self.memory.parts]

    def array(self, shape: int | Sequence[int], dtype: Any = np.float32) -> np.ndarray:
        """Zeros in shared memory, summed without a copy; all ranks call together, with the same shape."""
        nbytes = bytes_of(shape, dtype)
        if self.memory is None or nbytes == 0:
            return np.zeros(shape, dtype)
        memory = self.comm.share(nbytes)
        assert memory is not None
        array = SharedArray(memory, self.comm.rank, list(self.comm.members))
        return np.asarray(array)[:nbytes].view(dtype).reshape(shape)

    def __call__(self, comm: Communicator, x: Array) -> Array:
        """The sum of ``x`` over all ranks; ValueError, naming two ranks, if their shapes or dtypes differ."""
        if self.memory is None:
            return comm.allreduce(x)
        host = self.pinned.flat_copy([x])
        parts, *place = self.find(host)
        text = describe(host.dtype, x.shape, *place)
        if parts is not None:
            self.barrier(text)
            self.sum(parts)
            self.barrier()
            return x
        total = self.pinned.empty(x, x.size)
        step = SLOT // host.itemsize
        slots = [slot[: step * host.itemsize].view(host.dtype) for slot in self.slots]
        for start in range(0, max(1, host.size), step):
            part = host[start : start + step]
            own = slots[self.comm.rank][: part.size]
            np.copyto(own, part)
            self.barrier(text if start == 0 else None)
            self.sum([slot[: part.size] for slot in slots])
            self.barrier()
            np.copyto(total[start : start + step], own)
        result = array_module(x).asarray(total).reshape(x.shape)
        self.pinned.give_back(host, total)
        return result

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
        """Whether ``x`` is an array made by ``array``, also of another such object, or a part of one."""
        return type(x) is np.ndarray and self.find(x)[0] is not None

    def find(self, x: np.ndarray) -> tuple[list[np.ndarray] | None, int, int]:
        """If these ranks share the memory of ``x``: all ranks' parts there, its number and the offset."""
        base: Any = x
        while type(base) is np.ndarray:
            base = base.base
        if type(base) is not SharedArray or base.members != self.comm.members:
            return None, -1, 0
        offset = x.ctypes.data - base.address
        here = slice(offset, offset + x.nbytes)
        return [part[here].view(x.dtype) for part in base.memory.parts], base.memory.number, offset

    def barrier(self, text: bytes | None = None) -> None:
        """Wait for all ranks; raises ValueError unless all of them pass the same ``text``.

        Two barriers enclose each sum: ranks read one another's texts after the first, change them after the
        second.
        """
        assert self.memory is not None
        rank = self.comm.rank
        if text is not None:
            self.texts[rank][:] = text
        self.memory.barrier("to all-reduce")
        if text is not None and any(other != self.texts[rank] for other in self.texts):
            texts = [bytes(text) for text in self.texts]
            self.barrier()
            check_same_text(texts, self.comm.members)


class SharedArray:
    """The base object of an array in memory that ``members`` share: it keeps all their parts alive."""

    def __init__(self, memory: SharedMemory, rank: int, members: list[int]):
        self.memory, self.members = memory, members
        self.__array_interface__ = memory.parts[rank].__array_interface__
        self.address = memory.parts[rank].ctypes.data


def bytes_of(shape: int | Sequence[int], dtype: Any) -> int:
    return int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize


@lru_cache(1024)
def describe(dtype: np.dtype, shape: tuple[int, ...], number: int, offset: int) -> bytes:
    """A rank's array as a text of TEXT bytes, which must be the same on all ranks."""
    place = "" if number < 0 else f" at byte {offset} of shared memory {number % 2**32:x}"
    return to_text(f"{dtype}{shape}{place}")


def to_text(description: str) -> bytes:
    """The description in TEXT bytes; the end of a longer one becomes its checksum."""
    text = description.encode()
    if len(text) > TEXT:
        text = text[: TEXT - 12] + b"... %08x" % crc32(text)
    return text.ljust(TEXT)


def check_same_text(texts: Sequence[Any], members: Sequence[int], collective: str = "all-reduce") -> None:
    """Raise ValueError, naming two ranks that differ, unless the texts of all ranks are the same."""
    words = [bytes(text).decode().strip() for text in texts]
    for rank, other in zip(members, words, strict=True):
        if other != words[0]:
            raise ValueError(
                f"rank {members[0]} has {words[0]}, rank {rank} has {other} in one {collective}; "
                "make all ranks pass the same shape and dtype"
            )
