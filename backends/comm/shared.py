"""Memory that the ranks of one machine share, and how they meet there without a message.

Lecture section: synchronous data parallelism. Lesson: 05_messages.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .protocol import Comm

PAGE = 4096
TURN = 64  # bytes of each rank for the count of its turns: a line of the cache
SPINS = 200  # looks at another's turn before the wait proper


class SharedMemory(NamedTuple):
    """``parts[r]`` are rank r's bytes, which all ranks see.

    ``meet(what)`` waits for all ranks: what they wrote before it, each of them reads after it. ``what`` is
    what they come for, "to all-reduce", for the error of a wait that takes too long.
    """

    parts: list[np.ndarray]
    meet: Callable[[str], object]
    free: Callable[[], None]


def shared_memory(comm: Comm, nbytes: int) -> SharedMemory | None:
    """``nbytes`` of this rank that all ranks see, and theirs; None where they cannot share memory.

    All ranks must call this together; how much they ask for may differ.
    """
    share = getattr(comm, "share", None)
    return None if share is None else share(nbytes)


def share_among_threads(comm: Any, nbytes: int) -> SharedMemory | None:
    """``nbytes`` of this rank, which the other threads of the process see anyway; see ``MPIComm.share``."""
    _, parts = comm.meet("to share memory", np.zeros(nbytes, np.uint8))
    return SharedMemory([parts[rank] for rank in range(comm.size)], comm.meet, lambda: None)


class Turns:
    """A meeting in shared memory: each rank counts its turns where all see it, and waits for their counts."""

    def __init__(self, comm: Any, places: list[np.ndarray], sync: Callable[[], None]):
        self.comm, self.sync, self.turn = comm, sync, 0
        # Memory views: reading one number of them takes a third of the time it takes from an array.
        turns = [place.data.cast("q") for place in places]
        self.mine = turns[comm.rank]
        self.others = [(rank, turn) for rank, turn in enumerate(turns) if rank != comm.rank]
        self.mine[0] = 0

    def meet(self, what: str) -> None:
        self.turn += 1
        self.sync()
        self.mine[0] = self.turn
        for other, turn in self.others:
            spins = SPINS
            while turn[0] < self.turn and spins:
                spins -= 1
            if turn[0] < self.turn:
                peer = self.comm.members[other]
                self.comm.wait(lambda turn=turn: turn[0] >= self.turn, f"for rank {peer} {what}", [peer])
        self.sync()


def share_among_processes(comm: Any, nbytes: int, allocate: Callable[..., Any]) -> SharedMemory | None:
    """See ``MPIComm.share``; ``allocate`` opens MPI's shared window."""
    comm.meet("for all ranks to share memory")
    if comm.local_size != comm.size:
        return None
    nbytes = -(-(nbytes + TURN) // PAGE) * PAGE
    sizes, free_bytes = zip(*comm.mpi.allgather((nbytes, free_shared_memory())), strict=True)
    check_room(sum(sizes), min(free_bytes))
    window = allocate(nbytes, 1, comm=comm.mpi)
    window.Lock_all()
    memories = [np.frombuffer(window.Shared_query(rank)[0], np.uint8) for rank in range(comm.size)]
    turns = Turns(comm, [memory[-TURN:] for memory in memories], window.Sync)
    comm.meet("for all ranks to share memory")

    def free() -> None:
        if window:  # MPI's null window is false
            comm.meet("for all ranks to free shared memory")
            window.Unlock_all()
            window.Free()

    # At the very end, since arrays in it may be read until then; and not where this rank failed,
    # since the others will never come.
    atexit.register(lambda: free() if comm.closed else None)
    return SharedMemory([memory[:-TURN] for memory in memories], turns.meet, free)


def free_shared_memory() -> int:
    """Bytes that processes of this machine can still share."""
    room = os.statvfs("/dev/shm") if os.path.isdir("/dev/shm") else None
    return room.f_bavail * room.f_frsize if room else 1 << 62


def check_room(needed: int, free: int) -> None:
    """Raise RuntimeError unless ``needed`` bytes are ``free``; a write beyond them would end the process."""
    if free < needed:
        raise RuntimeError(
            f"the ranks share {needed >> 20} MB, /dev/shm has {free >> 20} MB free; "
            "give it more (docker run --shm-size=2g) or use the transport's own all-reduce"
        )
