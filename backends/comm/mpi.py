"""Ranks as MPI processes, on one machine or many: the only file that imports mpi4py.

Measured facts behind the choices: a blocking send of 16 KB to a busy rank lasts until that rank is
free, so sends are always started; a bare ``Wait`` has no bound, so waits poll ``Test``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any, cast

import numpy as np
from mpi4py import MPI

from minigrad.checked_entries import checks
from minigrad.device import Array, array_module, to_host

from ..launch.launcher import WorldError, check_world, refuse
from . import wire
from .background import ProcessBackground, ProcessWorker
from .collectives import naive_allreduce
from .parts import Part, Parts
from .patience import NOTHING, Patience
from .protocol import RankEnded, check_peer
from .receive import Receive
from .shared import SharedMemory, share_among_processes
from .window import WindowAllreduce, array_for, check_same
from .world import caller

CHECKED = 4096  # bytes up to which an all-reduce compares shapes first; MINIGRAD_CHECK=messages: always


class MPIComm(Part):
    """One process's end of an MPI communicator; ``MPIComm()`` is all the processes mpiexec started."""

    def __init__(self, comm: MPI.Intracomm | None = None, *, own: bool = False, in_background: bool = False):
        check_start()
        self.own = own  # ``close`` frees it
        self.mpi: MPI.Intracomm = MPI.COMM_WORLD if comm is None else comm
        self.rank, self.size = self.mpi.Get_rank(), self.mpi.Get_size()
        world = MPI.COMM_WORLD.Get_group()
        self.members: list[int] = MPI.Group.Translate_ranks(self.mpi.Get_group(), None, world)
        self.me = self.members[self.rank]
        self.last_tag: int = (MPI.COMM_WORLD.Get_attr(MPI.TAG_UB) or 32767) - 1
        self.in_background = in_background
        self.patience = Patience(MPI.COMM_WORLD, self.last_tag + 1, in_background)
        self.wait = self.patience.wait
        self.sending: deque[tuple[MPI.Request, Any, str]] = deque()  # what MPI may still read
        self.receives: dict[tuple[int, int], deque[Receive]] = {}  # in the order they were started
        self.started: dict[object, tuple[str, Any]] = {}
        self.lost: list[Receive] = []  # what came was not what was declared; MPI may still write there
        self.parts = Parts()
        self.window: WindowAllreduce | None = None  # of the arrays that ``array`` made

    def send(self, x: Array, to: int, tag: int = 0) -> None:
        self.check(to, tag)
        first, rest, private = wire.pack(x)
        self.sending = deque(one for one in self.sending if not one[0].Test())
        what = f"to send to rank {self.members[to]} (tag {tag})"
        rest = rest if rest is None or private else rest.copy()
        self.sending.extend((request, kept, what) for request, kept in self.post(first, rest, to, tag))

    def start_send(self, x: Array, to: int, tag: int = 0) -> Callable[[], None]:
        self.check(to, tag)
        first, rest, _ = wire.pack(x)
        requests = self.post(first, rest, to, tag)
        peer = self.members[to]
        done = self.note(f"the send to rank {peer} (tag {tag})", requests)

        def finish() -> None:
            what = f"to send to rank {peer} (tag {tag})"
            self.wait(lambda: all(r.Test() for r, _ in requests), what, [peer])
            done()

        return finish

    def recv(self, source: int, tag: int = 0, like: Array | None = None) -> Array:
        return self.begin(source, tag, like).finish()

    def start_recv(self, source: int, tag: int = 0, like: Array | None = None) -> Callable[[], Array]:
        receive = self.begin(source, tag, like)
        done = self.note(f"the receive from rank {self.members[source]} (tag {tag})", receive)

        def finish() -> Array:
            done()
            return receive.finish()

        return finish

    def recv_any(self, tag: int = 0) -> tuple[int, Array]:
        self.check(self.rank, tag)
        return self.take(MPI.ANY_SOURCE, tag, f"to receive from any rank (tag {tag})")

    def split(self, color: int, key: int | None = None) -> MPIComm:
        self.free_parts("for all ranks to split")
        group = cast(MPI.Intracomm, self.mpi.Split(color, self.rank if key is None else key))
        return MPIComm(group, own=True, in_background=self.in_background).part_of(self)

    def background(self) -> ProcessBackground:
        if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
            raise RuntimeError(
                "a communication thread needs an MPI that several threads may call (MPI_THREAD_MULTIPLE); "
                "unset MPI4PY_RC_THREAD_LEVEL, or communicate without a background (progress='test')"
            )
        self.free_parts("for all ranks to open a background")
        worker = ProcessWorker(MPIComm(self.mpi.Dup(), own=True, in_background=True))
        return ProcessBackground(worker, self.patience).part_of(self)

    def watch(self, ranks: Iterable[int], owing: Mapping[int, int] = NOTHING) -> None:
        """See ``Patience.watch_over``."""
        self.patience.watch_over(self, ranks, owing)

    def allreduce(self, x: Array) -> Array:
        """The sum of ``x`` over all ranks, by MPI's own all-reduce; of what ``array`` made in its place.

        Raises ValueError, naming two ranks that differ, where shape or dtype is not the same on all;
        this is looked at up to 4 KB, or always with MINIGRAD_CHECK=messages.
        """
        if self.window is not None and self.window.owns(x):
            return self.window(self, x)
        sent = np.asarray(to_host(x), order="C")
        if sent.nbytes <= CHECKED or checks("messages"):
            check_same(self, f"{sent.dtype}{sent.shape}")
        return array_module(x).asarray(self.start_allreduce(sent)())

    def start_allreduce(self, x: Array) -> Callable[[], Array]:
        """Start MPI's own all-reduce; the function returned finishes it. Shapes are not compared.

        It goes on only while this process is inside MPI (``progress``), unless MPI has a progress thread.
        """
        sent = np.asarray(to_host(x), order="C")
        if sent.dtype.kind not in "iufc" or sent.dtype == np.float16:
            return lambda: naive_allreduce(self, x)  # MPI has no such numbers
        what = f"{sent.dtype}{sent.shape}"
        total = np.empty_like(sent)
        request = self.mpi.Iallreduce(sent, total)
        done = self.note(f"the all-reduce of {what}", (request, sent))

        def finish() -> Array:
            self.wait(request.Test, f"for all ranks to all-reduce {what}", self.members)
            done()
            return array_module(x).asarray(total)

        return finish

    def progress(self) -> None:
        """Let MPI go on with what was started."""
        self.mpi.Iprobe()

    def close(self) -> None:
        """Wait until every message that was sent has left, and free what was made of this communicator.

        All ranks call this together; it may be called again. Raises RuntimeError where a started
        communication was never finished, saying which and where.
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
        self.patience.close()
        self.closed = True
        if "fence" in vars(self):
            self.fence.Unlock_all()
            self.fence.Free()
        if "host" in vars(self):
            self.host.Free()
        if self.own:
            self.mpi.Free()

    @cached_property
    def host(self) -> MPI.Comm:
        """The ranks on this machine."""
        self.meet("for all ranks to look who shares their machine")
        return self.mpi.Split_type(MPI.COMM_TYPE_SHARED)

    @property
    def local_rank(self) -> int:
        """This rank's number among those on this machine: the GPU it takes."""
        return self.host.Get_rank()

    @property
    def local_size(self) -> int:
        """How many of the ranks run on this machine."""
        return self.host.Get_size()

    def share(self, nbytes: int) -> SharedMemory | None:
        """``nbytes`` of this rank that all ranks read and write; None where they are not all on one machine.

        A rank gives it back when it holds no array in it any more. All ranks must call this together.
        """
        return share_among_processes(self, nbytes, self.fence.Sync)

    @cached_property
    def fence(self) -> MPI.Win:
        """Its ``Sync`` keeps in order what this process reads and writes before and after."""
        window = MPI.Win.Create(None, 1, comm=MPI.COMM_SELF)
        window.Lock_all()
        return window

    def array(self, shape: int | Sequence[int], dtype: Any = np.float32) -> np.ndarray:
        """Zeros that ``allreduce`` sums where they lie, if they are large and the ranks can share memory.

        All ranks must call this together, with the same shape.
        """
        return array_for(self, shape, dtype)

    # What the above is made of

    def post(self, first: bytes, rest: Array | None, to: int, tag: int) -> list[tuple[MPI.Request, Any]]:
        """Start to send the pieces; MPI keeps the order of one source, tag and communicator."""
        pieces = [first] if rest is None else [first, rest]
        return [(self.mpi.Isend([piece, MPI.BYTE], to, tag), piece) for piece in pieces]

    def begin(self, source: int, tag: int, like: Array | None) -> Receive:
        """Start a receive, behind those of the same source and tag that were started before."""
        self.check(source, tag)
        queue = self.receives.setdefault((source, tag), deque())
        receive = Receive(self, source, tag, like, queue)
        # Without ``like`` nobody knows whether one message or two will come, so nothing can be posted:
        # the message is matched when the receive is finished, and what is started later waits behind it.
        if like is not None and all(earlier.posted for earlier in queue):
            receive.post()
        queue.append(receive)
        return receive

    def start(self, buffer: Array, source: int, tag: int) -> MPI.Request:
        """A posted receive into ``buffer``."""
        return self.mpi.Irecv([buffer, MPI.BYTE], source, tag)

    def take(self, source: int, tag: int, what: str) -> tuple[int, Array]:
        """The next array from ``source``, or from anyone, whatever its shape; and who sent it."""
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

    def come(self, request: MPI.Request, what: str, source: int) -> int:
        """Wait for a posted receive from ``source``, a rank of the world; how many bytes came."""
        status = MPI.Status()
        self.wait(lambda: request.Test(status), what, [source])
        return status.Get_count(MPI.BYTE)

    def check(self, peer: int, tag: int) -> None:
        check_peer(self, peer)
        if not 0 <= tag <= self.last_tag:
            raise ValueError(f"an MPI tag must be 0 to {self.last_tag}, got {tag}")

    def note(self, what: str, kept: Any = None) -> Callable[[], None]:
        """Remember that ``what`` was started, and ``kept``, which MPI uses; the function returned forgets."""
        key = object()
        self.started[key] = (f"rank {self.me} never finished {what} that it started at {caller()}", kept)
        return lambda: self.started.pop(key, None) and None

    def tell(self, numbers: Sequence[int], what: str) -> np.ndarray:
        """All ranks' ``numbers``, a row for each rank; all ranks come together for it."""
        mine = np.array(numbers, np.int64)
        rows = np.empty((self.size, len(mine)), np.int64)
        self.wait(self.mpi.Iallgather(mine, rows).Test, what, self.members)
        return rows

    def free_parts(self, what: str) -> None:
        """Wait for all ranks to come here, and free the parts that none of them uses any more."""
        idle = self.parts.idle()
        everywhere = np.empty_like(idle)
        self.wait(self.mpi.Iallreduce(idle, everywhere, MPI.MIN).Test, what, self.members)
        self.parts.free(everywhere)

    def meet(self, what: str) -> None:
        """Wait for all ranks to come here: what MPI offers only without a bound is entered together."""
        self.wait(self.mpi.Ibarrier().Test, what, self.members)


def check_start() -> None:
    """End this process where MPI's world is not what started it; that of spawned ranks is not looked at."""
    try:
        if MPI.Comm.Get_parent() == MPI.COMM_NULL:
            check_world(MPI.COMM_WORLD.Get_size())
    except WorldError as error:
        MPI.Finalize()  # otherwise mpi4py ends the world with an abort, which says more
        refuse(str(error))


def library_version() -> str:
    """The MPI library's name and version, and that of the standard it keeps."""
    name = " ".join(MPI.Get_library_version().splitlines()[0].strip("\0").split())
    vendor, version = MPI.get_vendor()
    standard = ".".join(map(str, MPI.Get_version()))
    return f"{vendor} {'.'.join(map(str, version))} (MPI {standard}): {name}"
