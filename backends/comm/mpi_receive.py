"""A receive of MPI that was started: posted into memory of a known shape, or matched when it is finished."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np
from mpi4py import MPI

from minigrad.device import Array, array_module

from . import wire
from .communicator import check_expected

if TYPE_CHECKING:
    from .mpi import MPIComm


class RecvRequest:
    """A receive: posted when it is started if its shape is known, otherwise matched when it is finished.

    ``queue`` holds the receives of one source and tag, in the order they were started.
    """

    def __init__(self, comm: MPIComm, source: int, tag: int, expect: Array | None, queue: deque[RecvRequest]):
        self.comm, self.source, self.tag, self.expect, self.queue = comm, source, tag, expect, queue
        self.peer = comm.members[source]
        self.what = f"to receive from rank {self.peer} (tag {tag})"
        self.posted: list[Any] = []  # MPI's requests
        self.x: Array | None = None

    def post(self) -> None:
        """Give MPI memory for the first piece and, if the expected array is large, for the array itself."""
        assert self.expect is not None
        self.first = bytearray(wire.PIECE)
        self.posted.append(self.comm.mpi.Irecv([self.first, MPI.BYTE], self.source, self.tag))
        if self.expect.nbytes > wire.INLINE:
            on_device = array_module(self.expect) is not np
            self.flat = wire.room_for(wire.Header(self.expect.dtype, (self.expect.size,), (0,), on_device))
            flat = self.flat.view(np.uint8)
            self.posted.append(self.comm.mpi.Irecv([flat, MPI.BYTE], self.source, self.tag))

    def finish(self) -> Array:
        """Wait for the array, after the receives that were started earlier; may be called once.

        Raises ValueError, naming both sides, if its shape or dtype is not the expected one; later messages
        from the source with this tag may then be lost.
        """
        while self.x is None:
            if not self.queue or self not in self.queue:
                raise RuntimeError(f"the receive from rank {self.peer} (tag {self.tag}) was finished before")
            first = self.queue[0]
            first.x = first.complete()
            self.queue.popleft()
        x, self.x = self.x, None
        return check_expected(x, self.expect, self.peer, self.comm.world_rank, self.tag)

    def complete(self) -> Array:
        """Wait for this receive's array, which is the next one from its source with its tag."""
        if not self.posted:
            return self.comm.take(self.source, self.tag, self.what)[1]
        length = self.comm.received_bytes(self.posted[0], self.what, self.peer)
        header, x = wire.unpack(memoryview(self.first)[:length])
        rest = self.posted[1] if len(self.posted) > 1 else None
        if rest is not None and (header.nbytes, header.dtype) == (self.flat.nbytes, self.flat.dtype):
            wire.check_length(header, self.comm.received_bytes(rest, self.what, self.peer), header.nbytes)
            return wire.finish(self.flat, header)
        if rest is not None:
            rest.Cancel()
            self.comm.lost.append(self)
        # If x is None, return a placeholder: ``check_expected`` refuses it, naming its shape and dtype.
        return np.broadcast_to(np.zeros((), header.dtype), header.logical_shape) if x is None else x
