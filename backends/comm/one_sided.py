"""One-sided communication: an array of one rank that the others read and add to without its taking part.

Lecture section: asynchronous parameter server. Lesson: 08_parameter_server. MPI calls it remote memory
access; the array lies in a window. "Without its taking part" is what the program says. Where the hardware
cannot reach the other rank's memory, MPI itself must act there, and does so only while that rank is inside
MPI, or has a progress thread (MPICH: MPIR_CVAR_ASYNC_PROGRESS=1).
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from minigrad.device import Array, to_host

from .collectives import broadcast
from .mpi import MPI, MPIComm


class Exposed:
    """A copy of rank ``at``'s array ``x``, which every rank of ``comm`` reads and adds to at any time.

    All ranks construct it together, and close it together; the others pass None for ``x``. Every number is
    read and added to as one, the array is not: a reader may find some numbers of another rank's addition
    and not yet the rest. What is added by all is added once, in any order. ``shared`` False puts the array
    where no other rank of the machine can reach it itself, as on another machine. Waits are bounded, as in
    ``MPIComm``. Raises ValueError, on all ranks, where ``x`` is missing or of a dtype that MPI cannot add.
    """

    def __init__(self, comm: MPIComm, x: Array | None = None, at: int = 0, *, shared: bool = True):
        self.comm, self.at = comm, at
        comm.check(at, 0)
        comm.meet("for all ranks to open a window")
        mine = np.asarray(to_host(x), order="C") if comm.rank == at and x is not None else None
        # An empty array tells shape and dtype; the first axis is none of the exposed array's.
        found = broadcast(comm, np.empty(()) if mine is None else np.empty((0, *mine.shape), mine.dtype), at)
        if found.ndim == 0:
            raise ValueError(f"rank {at} exposes an array, but passed none; pass one there, None elsewhere")
        self.shape, self.dtype = found.shape[1:], found.dtype
        if self.dtype.kind not in "iufc" or self.dtype == np.float16:
            raise ValueError(f"MPI cannot add {self.dtype}; expose integers, float32 or float64")
        self.none = np.empty(self.shape, self.dtype)  # what a read adds
        nbytes = self.none.nbytes if comm.rank == at else 0
        if shared:
            self.window: Any = MPI.Win.Allocate(nbytes, self.dtype.itemsize, comm=comm.mpi)
        else:
            self.window = MPI.Win.Create(bytearray(nbytes), self.dtype.itemsize, comm=comm.mpi)
        self.window.Lock_all()  # once and for all: to be granted, each lock would need rank ``at`` in MPI
        if mine is not None:
            np.frombuffer(self.window.tomemory(), self.dtype).reshape(self.shape)[...] = mine
            self.window.Sync()
        comm.meet("for all ranks to open a window")

    def get(self) -> np.ndarray:
        """A copy of what is there now."""
        return self.access(self.none, MPI.NO_OP, "read")

    def accumulate(self, x: Array) -> np.ndarray:
        """Add ``x`` to what is there; a copy of what was there before.

        Raises ValueError where ``x`` has another shape or dtype than the exposed array.
        """
        x = np.asarray(to_host(x), order="C")
        if (x.shape, x.dtype) != (self.shape, self.dtype):
            raise ValueError(
                f"rank {self.comm.me} adds {x.dtype}{x.shape} to {self.dtype}{self.shape}, which rank "
                f"{self.comm.members[self.at]} exposes; pass an array like it"
            )
        return self.access(x, MPI.SUM, "add to")

    def access(self, x: np.ndarray, op: MPI.Op, what: str) -> np.ndarray:
        """Apply ``op`` there with ``x``; finished when what was there before has come back."""
        before = np.empty_like(x)
        request = self.window.Rget_accumulate(x, before, self.at, op=op)
        text = f"to {what} the window of rank {self.comm.members[self.at]}"
        done = self.comm.note(f"the access {text}", (request, x, before))
        self.comm.wait(request.Test, text)
        done()
        return before

    def close(self) -> None:
        """Free the window, all ranks together; may be called again."""
        if self.window:  # MPI's null window is false
            self.comm.meet("for all ranks to close a window")
            self.window.Unlock_all()
            self.window.Free()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:  # where this rank failed, the others never come
            self.close()
