"""A receive over MPI: posted when it is started where its shape is declared, else matched when finished."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np

from minigrad.device import Array, array_module

from . import wire
from .protocol import check_like

if TYPE_CHECKING:
    from .mpi import MPIComm


class Receive:
    """One of the receives of a source and tag, which ``queue`` holds in the order they were started."""

    def __init__(self, comm: MPIComm, source: int, tag: int, like: Array | None, queue: deque[Receive]):
        self.comm, self.source, self.tag, self.like, self.queue = comm, source, tag, like, queue
        self.peer = comm.members[source]
        self.what = f"to receive from rank {self.peer} (tag {tag})"
        self.posted: list[Any] = []  # MPI's requests
        self.x: Array | None = None

    def post(self) -> None:
        """Give MPI the memory now: the first piece's and, where ``like`` is large, the array's own."""
        assert self.like is not None
        self.first = bytearray(wire.PIECE)
        self.posted.append(self.comm.start(self.first, self.source, self.tag))
        if self.like.nbytes > wire.INLINE:
            on_device = array_module(self.like) is not np
            self.flat = wire.room_for(wire.Header(self.like.dtype, (self.like.size,), (0,), on_device))
            self.posted.append(self.comm.start(self.flat.view(np.uint8), self.source, self.tag))

    def finish(self) -> Array:
        """Wait for the array, and for those that were started before; may be called once.

        Raises ValueError, naming both sides, where it is not like the declared one; what the source sends
        with this tag after that may be lost.
        """
        while self.x is None:
            if not self.queue or self not in self.queue:
                raise RuntimeError(f"the receive from rank {self.peer} (tag {self.tag}) was finished before")
            first = self.queue[0]
            first.x = (
                first.complete() if first.posted else first.comm.take(self.source, self.tag, self.what)[1]
            )
            self.queue.popleft()
        x, self.x = self.x, None
        return check_like(x, self.like, self.peer, self.comm.me, self.tag)

    def complete(self) -> Array:
        """The array of a posted receive."""
        length = self.comm.come(self.posted[0], self.what, self.peer)
        header, x = wire.unpack(memoryview(self.first)[:length])
        rest = self.posted[1] if len(self.posted) > 1 else None
        if rest is not None and (header.nbytes, header.dtype) == (self.flat.nbytes, self.flat.dtype):
            wire.check_length(header, self.comm.come(rest, self.what, self.peer), header.nbytes)
            return wire.finish(self.flat, header)
        if rest is not None:
            rest.Cancel()
            self.comm.lost.append(self)
        # Where x is None a stand-in: ``check_like`` refuses it, naming its shape and dtype.
        return np.broadcast_to(np.zeros((), header.dtype), header.logical_shape) if x is None else x
