"""A communicator that catches who changes an array while it is being sent."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from backends.comm.protocol import Comm
from minigrad.device import Array


class Strict:
    """``comm``, where finishing a started send asserts that the array is what it was when it was started.

    Thread ranks copy at once, so with them alone a buffer that is used again too early goes unseen.
    """

    def __init__(self, comm: Comm):
        self.comm, self.rank, self.size = comm, comm.rank, comm.size
        self.send, self.recv = comm.send, comm.recv
        self.start_recv, self.recv_any = comm.start_recv, comm.recv_any
        self.background, self.close = comm.background, comm.close

    def start_send(self, x: Array, to: int, tag: int = 0) -> Callable[[], None]:
        before, finish = x.copy(), self.comm.start_send(x, to, tag)

        def finish_unchanged() -> None:
            finish()
            assert np.array_equal(x, before), f"rank {self.rank} changed what it was sending to rank {to}"

        return finish_unchanged

    def split(self, color: int, key: int | None = None) -> Strict:
        return Strict(self.comm.split(color, key))
