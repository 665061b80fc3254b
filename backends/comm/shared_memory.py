"""Memory that the ranks of one machine share, and a barrier in it that sends no message.

Lecture section: synchronous data parallelism.
"""

from __future__ import annotations

import errno
import mmap
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

PAGE = 4096
COUNTER = 64  # bytes of each rank for its count of barriers: a cache line
SPINS = 200  # reads of another rank's counter before the wait proper
FOLDER = "/dev/shm" if os.path.isdir("/dev/shm") else tempfile.gettempdir()  # of files that are memory
PREFIX = "minigrad_shm_"  # of their names
MORE = "give it more (docker run --shm-size=2g)"
MPICH_BYTES = (1033 + 4232) << 10  # of each rank: MPICH's queues, and those of UCX below it (5.0.2, measured)
FEWER_CELLS = "MPIR_CVAR_CH4_SHM_POSIX_IQUEUE_NUM_CELLS"  # the variable that makes the queues shorter


class SharedMemory(NamedTuple):
    """``parts[r]`` are rank r's bytes, which all ranks see.

    After ``barrier(what)`` each rank reads what all ranks wrote before it; ``what``, such as "to all-reduce",
    names the purpose in the error of a wait that takes too long. The memory is freed when the rank has
    dropped all parts and all arrays in them. All ranks know it by the same ``number``, unlike any other's.
    """

    parts: list[np.ndarray]
    barrier: Callable[[str], object]
    number: int


class SharedBarrier:
    """A barrier in shared memory: each rank counts its calls in ``counters`` and waits for the others.

    ``wait(ready, what, needs)`` is the wait of a rank that has polled for a while; ``sync`` orders the
    process's reads and writes.
    """

    def __init__(
        self,
        rank: int,
        members: Sequence[int],
        counters: Sequence[np.ndarray],
        wait: Callable[[Callable[[], bool], str, Sequence[int]], object],
        sync: Callable[[], object],
    ):
        self.members, self.wait, self.sync, self.count = members, wait, sync, 0
        # Memory views: reading one number of them takes a third of the time it takes from an array.
        views = [counter.data.cast("q") for counter in counters]
        self.own = views[rank]
        self.others = [(other, view) for other, view in enumerate(views) if other != rank]

    def __call__(self, what: str) -> None:
        self.count += 1
        self.sync()
        self.own[0] = self.count
        for other, counter in self.others:
            spins = SPINS
            while counter[0] < self.count and spins:
                spins -= 1
            if counter[0] < self.count:
                peer = self.members[other]
                self.wait(lambda counter=counter: counter[0] >= self.count, f"for rank {peer} {what}", [peer])
        self.sync()


def padded(nbytes: int) -> int:
    """``nbytes`` and a counter, rounded up to whole pages."""
    return -(-(nbytes + COUNTER) // PAGE) * PAGE


def map_file(path: str, total: int, start: int, nbytes: int, make: bool) -> tuple[mmap.mmap | None, int]:
    """Map all ``total`` bytes of the file and allocate this rank's part now, so that no later write can fail.

    With ``make`` the file must be new. Returns the map, or None, and the number of the error, or 0.
    """
    try:
        file = os.open(path, os.O_RDWR | (os.O_CREAT | os.O_EXCL if make else 0), 0o600)
        try:
            if sys.platform == "linux":
                os.posix_fallocate(file, start, nbytes)
            if os.fstat(file).st_size < total:
                os.ftruncate(file, total)
            return mmap.mmap(file, total), 0
        finally:
            os.close(file)
    except OSError as error:
        return None, error.errno or errno.EIO


def free_shared_memory() -> int:
    """Bytes that processes of this machine can still share; 0 if the folder is read-only."""
    room = os.statvfs(FOLDER)
    return 0 if room.f_flag & os.ST_RDONLY else room.f_bavail * room.f_frsize


def check_room_for_ranks(ranks: int, free: int) -> None:
    """Raise RuntimeError unless there is room for what MPICH's ranks share: a bus error would end them."""
    if free < (needed := ranks * MPICH_BYTES):
        raise RuntimeError(
            f"{ranks} MPI processes share {-(-needed >> 20)} MB, {FOLDER} has {free >> 20} MB free; {MORE}, "
            f"take less ({FEWER_CELLS}=8 UCX_TLS=^posix,tcp), or use --transport threads"
        )


def check_room(needed: int, free: int) -> None:
    """Raise RuntimeError unless ``needed`` bytes are ``free``: a write beyond them would end the process."""
    if free < needed:
        raise RuntimeError(
            f"the ranks share {needed >> 20} MB, {FOLDER} has {free >> 20} MB free; "
            f"{MORE} or use the transport's own all-reduce"
        )
