"""Ranks as MPI processes, on one machine or many: the only file that imports mpi4py.

Measured facts behind the choices: a blocking send of 16 KB to a busy rank lasts until that rank is
free, so sends are always started; a bare ``Wait`` has no bound, so waits poll ``Test``.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable

import numpy as np
from mpi4py import MPI

from minigrad.device import Array, array_module, to_device, to_host

from .protocol import check_peer, wait_limit


class MPIComm:
    """One process's end of an MPI communicator; ``MPIComm()`` is all the processes mpiexec started."""

    def __init__(self, comm: MPI.Comm | None = None):
        self.mpi: MPI.Comm = MPI.COMM_WORLD if comm is None else comm
        self.rank, self.size = self.mpi.Get_rank(), self.mpi.Get_size()
        self.sending: list[tuple[MPI.Request, bytes]] = []  # what MPI may still read

    def send(self, x: Array, to: int, tag: int = 0) -> None:
        check_peer(self, to)
        # Shape, dtype and memory order travel with the data; a device array is staged through the host.
        on_device = array_module(x) is not np
        message = pickle.dumps((on_device, to_host(x)), protocol=5)
        self.sending = [(request, kept) for request, kept in self.sending if not request.Test()]
        self.sending.append((self.mpi.Isend([message, MPI.BYTE], to, tag), message))

    def recv(self, source: int, tag: int = 0) -> Array:
        check_peer(self, source)
        what = f"a message from rank {source} with tag {tag}"
        status = MPI.Status()
        message = self.wait(lambda: self.mpi.Improbe(source, tag, status), what)
        buffer = bytearray(status.Get_count(MPI.BYTE))
        request = message.Irecv([buffer, MPI.BYTE])
        self.wait(request.Test, what)
        on_device, x = pickle.loads(buffer)
        return to_device(x, "cupy") if on_device else x

    def start_recv(self, source: int, tag: int = 0) -> Callable[[], Array]:
        check_peer(self, source)
        return lambda: self.recv(source, tag)

    def split(self, color: int, key: int | None = None) -> MPIComm:
        return MPIComm(self.mpi.Split(color, self.rank if key is None else key))

    def allreduce(self, x: Array) -> Array:
        """The sum of ``x`` over all ranks, by MPI's own all-reduce."""
        sent = np.ascontiguousarray(to_host(x))
        total = np.empty_like(sent)
        self.wait(self.mpi.Iallreduce(sent, total).Test, "all ranks to enter an all-reduce")
        return array_module(x).asarray(total)

    def close(self) -> None:
        """Wait until every message that was sent has left."""
        for request, _ in self.sending:
            self.wait(request.Test, "its sent messages to be received")
        self.sending.clear()

    @property
    def local_rank(self) -> int:
        """This rank's number among those on this machine: the GPU it takes."""
        return self.mpi.Split_type(MPI.COMM_TYPE_SHARED).Get_rank()

    @property
    def local_size(self) -> int:
        """How many of the ranks run on this machine."""
        return self.mpi.Split_type(MPI.COMM_TYPE_SHARED).Get_size()

    def wait(self, done: Callable, what: str):
        """Poll ``done()`` until it is true, at first without pause, then ever more seldom."""
        start, pause, limit = time.monotonic(), 0.0, wait_limit()
        while not (result := done()):
            waited = time.monotonic() - start
            if waited > limit:
                raise TimeoutError(
                    f"rank {self.rank} waited {limit:g} s for {what}; check that every rank makes "
                    "the same calls, or raise MINIGRAD_TIMEOUT"
                )
            if waited > 0.002:  # ranks in step meet within this; others leave the core to those who compute
                pause = min(pause + 20e-6, 1e-3)
                time.sleep(pause)
        return result


def library_version() -> str:
    """The MPI library's name and version, and that of the standard it keeps."""
    name = " ".join(MPI.Get_library_version().splitlines()[0].strip("\0").split())
    vendor, version = MPI.get_vendor()
    standard = ".".join(map(str, MPI.Get_version()))
    return f"{vendor} {'.'.join(map(str, version))} (MPI {standard}): {name}"
