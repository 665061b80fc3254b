"""Page-locked host memory for the arrays of a GPU that a communicator sums on the host.

A GPU copies to and from such memory by itself, without a further copy of the processor's.
Lecture section: GPU against CPU.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from typing import Any

import numpy as np

from minigrad.device import Array, array_module, loaded_cuda, on_gpu, unflatten


class PinnedBuffers:
    """The page-locked memory of one communicator: a buffer for each array that is on its way at one time.

    A buffer grows to the largest array that it had to hold. A call that fails does not return its buffers,
    because MPI may still write into them.
    """

    def __init__(self) -> None:
        self.free: list[tuple[np.ndarray, Any]] = []  # by size; each with the event of its last upload
        self.in_use: dict[int, np.ndarray] = {}  # by the id of the buffer

    def empty(self, like: Array, size: int) -> np.ndarray:
        """A flat host array of ``size`` elements of like's dtype, in a buffer if ``like`` is on a GPU."""
        if not on_gpu(like):
            return np.empty(size, like.dtype)
        nbytes = size * like.dtype.itemsize
        buffer = None
        if self.free:
            at = bisect_left(self.free, nbytes, key=lambda one: one[0].nbytes)
            buffer, uploaded = self.free.pop(min(at, len(self.free) - 1))
            uploaded.synchronize()
        if buffer is None or buffer.nbytes < nbytes:
            buffer = page_locked(like, nbytes)
        self.in_use[id(buffer)] = buffer
        return buffer[:nbytes].view(like.dtype)

    def flat_copy(self, arrays: Sequence[Array]) -> np.ndarray:
        """The elements of ``arrays``, each in C order, flat on the host; one host array may be itself."""
        if len(arrays) == 1 and not on_gpu(arrays[0]):
            return np.asarray(arrays[0], order="C").reshape(-1)
        flat = self.empty(arrays[0], sum(x.size for x in arrays))
        for part, x in zip(unflatten(flat, arrays), arrays, strict=True):
            if on_gpu(x):
                x.reshape(-1).get(out=part.reshape(-1))
            else:
                part[...] = x
        return flat

    def give_back(self, *arrays: np.ndarray) -> None:
        """Use the buffers of ``arrays`` again, once the GPU has read what it was asked to read."""
        for array in arrays:
            buffer = self.in_use.pop(id(array.base), None)
            if buffer is not None:
                uploaded = loaded_cuda().get_current_stream().record()
                insort(self.free, (buffer, uploaded), key=lambda one: one[0].nbytes)


def page_locked(like: Array, nbytes: int) -> np.ndarray:
    """``nbytes`` or more of host memory, page-locked where possible, for arrays of like's GPU."""
    try:
        return np.frombuffer(array_module(like).cuda.alloc_pinned_memory(max(1, nbytes)), np.uint8)
    except Exception:  # page-locked memory is limited; any other does
        return np.empty(nbytes, np.uint8)
