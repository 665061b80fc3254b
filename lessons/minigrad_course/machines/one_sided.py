"""One-sided communication: ranks read an array of another rank and add to it while that rank does other work.

Lecture section: asynchronous parameter server. Lesson: 08_parameter_server. MPI calls it remote memory
access, and the array a window. Where the hardware cannot reach the other rank's memory, MPI acts on that
rank: only while its program is inside MPI, or by a progress thread (MPICH: MPIR_CVAR_ASYNC_PROGRESS=1).
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from backends.comm.collectives import broadcast
from backends.comm.mpi import MPI, MPIComm
from minigrad.device import Array, to_host


class Window:
    """A copy of rank ``at``'s array ``x``, which every rank of ``comm`` reads and adds to at any time.

    All ranks construct and close it together; the others pass None for ``x``. Single numbers are read and
    added to atomically, the array is not: a reader may see a part of another rank's addition. Every
    addition counts once, in any order. With ``shared`` False no other rank of the machine can reach the
    array directly, as if it were on another machine. Waits have a timeout, as in ``MPIComm``.
    Raises ValueError, on all ranks, if ``x`` is missing or has a dtype that MPI cannot add.
    """

    def __init__(self, comm: MPIComm, x: Array | None = None, at: int = 0, *, shared: bool = True):
        self.comm, self.at = comm, at
        comm.check(at, 0)
        comm.barrier_with("for all ranks to open a window")
        own = np.asarray(to_host(x), order="C") if comm.rank == at and x is not None else None
        # An empty array carries shape and dtype, after an axis of length 0.
        header = broadcast(comm, np.empty(()) if own is None else np.empty((0, *own.shape), own.dtype), at)
        if header.ndim == 0:
            raise ValueError(f"rank {at} exposes an array, but passed none; pass one there, None elsewhere")
        self.shape, self.dtype = header.shape[1:], header.dtype
        if self.dtype.kind not in "iufc" or self.dtype == np.float16:
            raise ValueError(f"MPI cannot add {self.dtype}; expose integers, float32 or float64")
        self.zeros = np.empty(self.shape, self.dtype)  # the operand of a read
        nbytes = self.zeros.nbytes if comm.rank == at else 0
        if shared:
            self.window: Any = MPI.Win.Allocate(nbytes, self.dtype.itemsize, comm=comm.mpi)
        else:
            self.window = MPI.Win.Create(bytearray(nbytes), self.dtype.itemsize, comm=comm.mpi)
        self.window.Lock_all()  # once: to grant each lock anew, rank ``at`` would have to be inside MPI
        if own is not None:
            np.frombuffer(self.window.tomemory(), self.dtype).reshape(self.shape)[...] = own
            self.window.Sync()
        comm.barrier_with("for all ranks to open a window")

    def get(self) -> np.ndarray:
        """A copy of the array now."""
        return self.access(self.zeros, MPI.NO_OP, "read")

    def accumulate(self, x: Array) -> np.ndarray:
        """Add ``x`` to the array; returns a copy of the array before.

        Raises ValueError if ``x`` has another shape or dtype than the exposed array.
        """
        x = np.asarray(to_host(x), order="C")
        if (x.shape, x.dtype) != (self.shape, self.dtype):
            raise ValueError(
                f"rank {self.comm.world_rank} adds {x.dtype}{x.shape} to {self.dtype}{self.shape}, which "
                f"rank {self.comm.members[self.at]} exposes; pass an array like it"
            )
        return self.access(x, MPI.SUM, "add to")

    def access(self, x: np.ndarray, op: MPI.Op, what: str) -> np.ndarray:
        """Apply ``op`` with ``x`` on rank ``at``; returns the array before, which completes the access."""
        before = np.empty_like(x)
        request = self.window.Rget_accumulate(x, before, self.at, op=op)
        text = f"to {what} the window of rank {self.comm.members[self.at]}"
        forget = self.comm.remember_pending(f"the access {text}", (request, x, before))
        self.comm.wait(request.Test, text)
        forget()
        return before

    def close(self) -> None:
        """Free the window, all ranks together; may be called again."""
        if self.window:  # MPI's null window is false
            self.comm.barrier_with("for all ranks to close a window")
            self.window.Unlock_all()
            self.window.Free()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:  # after an error on this rank the others would never come
            self.close()
