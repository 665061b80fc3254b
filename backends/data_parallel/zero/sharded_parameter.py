"""A flat parameter of which a rank holds only its own part, except between ``unshard`` and ``reshard``.

Lecture section: data lifetimes. Lesson: 06_data_parallel, by ``gathered_weights.py``.
"""

from __future__ import annotations

import mmap
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress

import numpy as np

from minigrad.device import Array, array_module
from minigrad.tensor import Parameter

from ...comm.communicator import Communicator
from .flat_parameter import FlatParameter, Start, nan_like

# Bytes from which pages of 2 MB are requested, as in NumPy: allocating them is five times as fast.
HUGE = 1 << 22


class ShardedParameter(FlatParameter):
    """A flat parameter whose whole array has memory only while it is in use; the shard is another array.

    Between ``reshard`` and the next ``unshard`` the parameters' ``data`` read NaN.
    """

    def __init__(self, parameters: Sequence[Parameter], comm: Communicator, start: Start, number: int = 0):
        super().__init__(parameters, comm, start, number)
        self.shard = self.shard.copy()
        self.ref_count = 1
        self.reshard()

    @property
    def is_whole(self) -> bool:
        return self.ref_count > 0

    def allocate(self) -> Array:
        whole, self.free = freeable_array(self.parameters[0].data, self.layout.size)
        return whole

    def unshard(self) -> None:
        """Gather the weights; they stay whole until ``reshard`` has been called as often."""
        if not self.ref_count:
            self.all_gather()
            for parameter, view in zip(self.parameters, self.views, strict=True):
                parameter.data = view
        self.ref_count += 1

    def reshard(self) -> None:
        self.ref_count -= 1
        if not self.ref_count:
            for parameter, view in zip(self.parameters, self.views, strict=True):
                parameter.data = nan_like(view)
            self.free()

    def unshard_for_good(self) -> None:
        """Gather the weights and keep them; the shard becomes a view of the whole array."""
        if not self.ref_count:
            self.unshard()
            self.shard = self.unsharded[self.layout.parts[self.comm.rank]]

    def all_gather(self) -> None:
        super().all_gather()
        self.unsharded[self.layout.parts[self.comm.rank]] = self.shard

    def values(self) -> list[np.ndarray]:
        self.unshard()
        values = super().values()
        self.reshard()
        return values


def freeable_array(like: Array, size: int) -> tuple[Array, Callable[[], object]]:
    """An array of ``size`` zeros, and the function that frees its memory but not its address.

    Views of the array stay valid: they read zeros, and writing allocates memory again. Only Linux guarantees
    this, for private pages; elsewhere, and on a GPU, the function writes zeros and frees nothing.
    """
    xp = array_module(like)
    if xp is not np or sys.platform != "linux":
        array = xp.zeros(size, like.dtype)
        return array, lambda: array.fill(0)
    pages = mmap.mmap(-1, max(1, size * like.itemsize), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if len(pages) >= HUGE:
        with suppress(OSError):  # a kernel without them
            pages.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(pages, like.dtype, size), lambda: pages.madvise(mmap.MADV_DONTNEED)
