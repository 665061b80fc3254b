"""Memory that the ranks of one machine share, and how they meet there without a message.

Lecture section: synchronous data parallelism. Lesson: 05_messages.
"""

from __future__ import annotations

import errno
import mmap
import os
import secrets
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from .protocol import Comm

PAGE = 4096
TURN = 64  # bytes of each rank for the count of its turns: a line of the cache
SPINS = 200  # looks at another's turn before the wait proper
FOLDER = "/dev/shm" if os.path.isdir("/dev/shm") else tempfile.gettempdir()  # of files that are memory
PREFIX = "minigrad_shm_"  # of their names
MORE = "give it more (docker run --shm-size=2g)"
MPICH_BYTES = (1033 + 4232) << 10  # of each rank: MPICH's queues, and those of UCX below it (5.0.2, measured)
FEWER_CELLS = "MPIR_CVAR_CH4_SHM_POSIX_IQUEUE_NUM_CELLS"  # the variable that makes the queues shorter


class SharedMemory(NamedTuple):
    """``parts[r]`` are rank r's bytes, which all ranks see.

    ``meet(what)`` waits for all ranks: what they wrote before it, each of them reads after it. ``what`` is
    what they come for, "to all-reduce", for the error of a wait that takes too long. A rank gives the memory
    back when it holds no part of it any more, nor an array in one.
    """

    parts: list[np.ndarray]
    meet: Callable[[str], object]


def shared_memory(comm: Comm, nbytes: int) -> SharedMemory | None:
    """``nbytes`` of this rank that all ranks see, and theirs; None where they cannot share memory.

    All ranks must call this together; how much they ask for may differ.
    """
    share = getattr(comm, "share", None)
    return None if share is None else share(nbytes)


def share_among_threads(comm: Any, nbytes: int) -> SharedMemory | None:
    """``nbytes`` of this rank, which the other threads of the process see anyway; see ``MPIComm.share``."""
    _, parts = comm.meet("to share memory", np.zeros(nbytes, np.uint8))
    return SharedMemory([parts[rank] for rank in range(comm.size)], comm.meet)


class Turns:
    """A meeting in shared memory: each rank counts its turns where all see it, and waits for their counts."""

    def __init__(self, comm: Any, places: list[np.ndarray], sync: Callable[[], None]):
        self.wait, self.members, self.sync, self.turn = comm.wait, comm.members, sync, 0
        # Memory views: reading one number of them takes a third of the time it takes from an array.
        turns = [place.data.cast("q") for place in places]
        self.mine = turns[comm.rank]
        self.others = [(rank, turn) for rank, turn in enumerate(turns) if rank != comm.rank]

    def meet(self, what: str) -> None:
        self.turn += 1
        self.sync()
        self.mine[0] = self.turn
        for other, turn in self.others:
            spins = SPINS
            while turn[0] < self.turn and spins:
                spins -= 1
            if turn[0] < self.turn:
                peer = self.members[other]
                self.wait(lambda turn=turn: turn[0] >= self.turn, f"for rank {peer} {what}", [peer])
        self.sync()


def share_among_processes(comm: Any, nbytes: int, sync: Callable[[], None]) -> SharedMemory | None:
    """See ``MPIComm.share``; ``sync`` keeps a process's reads and writes in order.

    The memory is a file's, which has lost its name when this returns: the machine takes it back when no
    process maps it any more, however that came. RuntimeError, on all ranks, where one of them has no room.
    """
    what = "for all ranks to share memory"
    comm.meet(what)
    if comm.local_size != comm.size:
        return None
    nbytes = -(-(nbytes + TURN) // PAGE) * PAGE
    sizes, free_bytes, names = comm.tell(
        [nbytes, free_shared_memory(), secrets.randbits(62)], what
    ).T.tolist()
    check_room(sum(sizes), min(free_bytes))
    *starts, total = accumulate(sizes, initial=0)
    path = f"{FOLDER}/{PREFIX}{names[0]:x}"
    memory: mmap.mmap | None = None
    try:
        error = create(path) if comm.rank == 0 else None
        comm.meet(what)
        if error is None:
            memory, error = mapped(path, total, starts[comm.rank], nbytes)
        errors = comm.tell([0 if error is None else error.errno or errno.EIO], what)[:, 0].tolist()
    finally:
        if comm.rank == 0:
            with suppress(OSError):
                os.unlink(path)
    for rank, number in enumerate(errors):
        if number:
            raise RuntimeError(
                f"rank {comm.members[rank]} cannot share {total >> 20} MB of memory in {FOLDER}: "
                f"{os.strerror(number)}; {MORE} or use the transport's own all-reduce"
            )
    assert memory is not None
    whole = np.frombuffer(memory, np.uint8)
    parts = [whole[start : start + size] for start, size in zip(starts, sizes, strict=True)]
    turns = Turns(comm, [part[-TURN:] for part in parts], sync)
    return SharedMemory([part[:-TURN] for part in parts], turns.meet)


def create(path: str) -> OSError | None:
    """Make the file, which nobody else had; what went wrong."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except OSError as error:
        return error
    return None


def mapped(path: str, total: int, start: int, nbytes: int) -> tuple[mmap.mmap | None, OSError | None]:
    """All ``total`` bytes of the file, this rank's allocated now: no write must find that none are left.

    None, and what went wrong, where they cannot be had.
    """
    try:
        file = os.open(path, os.O_RDWR)
        try:
            if sys.platform == "linux":
                os.posix_fallocate(file, start, nbytes)
            if os.fstat(file).st_size < total:
                os.ftruncate(file, total)
            return mmap.mmap(file, total), None
        finally:
            os.close(file)
    except OSError as error:
        return None, error


def free_shared_memory() -> int:
    """Bytes that processes of this machine can still share; 0 where none of them may."""
    room = os.statvfs(FOLDER)
    return 0 if room.f_flag & os.ST_RDONLY else room.f_bavail * room.f_frsize


def check_room_for_ranks(ranks: int, free: int) -> None:
    """Raise RuntimeError unless MPICH finds what its ranks share; else a bus error would end them."""
    needed = ranks * MPICH_BYTES
    if free < needed:
        raise RuntimeError(
            f"{ranks} MPI processes share {-(-needed >> 20)} MB, {FOLDER} has {free >> 20} MB free; {MORE}, "
            f"take less ({FEWER_CELLS}=8 UCX_TLS=^posix,tcp), or use --transport threads"
        )


def check_room(needed: int, free: int) -> None:
    """Raise RuntimeError unless ``needed`` bytes are ``free``; a write beyond them would end the process."""
    if free < needed:
        raise RuntimeError(
            f"the ranks share {needed >> 20} MB, {FOLDER} has {free >> 20} MB free; "
            f"{MORE} or use the transport's own all-reduce"
        )
