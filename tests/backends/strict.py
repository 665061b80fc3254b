"""A communicator that catches who changes an array while it is being sent."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from backends.comm.communicator import Wrapper
from minigrad.device import Array


class Strict(Wrapper):
    """``comm``, where finishing a started send asserts that the array is what it was when it was started.

    Thread ranks copy at once, so with them alone a buffer that is used again too early goes unseen.
    """

    def start_send(self, x: Array, to: int, tag: int = 0) -> Callable[[], None]:
        before, finish = x.copy(), self.comm.start_send(x, to, tag)

        def finish_unchanged() -> None:
            finish()
            assert np.array_equal(x, before), f"rank {self.rank} changed what it was sending to rank {to}"

        return finish_unchanged

    def share(self, nbytes: int) -> None:
        """None: what ranks write into shared memory would not be seen here."""

    def split(self, color: int, key: int | None = None) -> Strict:
        return Strict(self.comm.split(color, key))
