"""MPI's own collective calls, for arrays of any shapes and memory orders; ``MPIComm.collective`` finds them.

Each takes and returns what our form of it in ``collectives`` does. Where receivers cannot know what comes,
a first call carries the arrays' headers and a second one their memory, as bytes: MPI needs the length of
every part, and knows nothing of memory order. All calls are non-blocking, so that every wait is bounded.
Lecture section: synchronous data parallelism. Lesson: 05_messages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from minigrad.checked_entries import checks
from minigrad.device import Array, array_module, to_device

from . import collectives, wire
from .collectives import Operator
from .collectives.blocks import check_parts, in_shape_of
from .collectives.send_recv import check_peer

if TYPE_CHECKING:
    from .mpi import MPIComm

CHECKED = 4096  # bytes up to which an all-reduce compares shapes first; MINIGRAD_CHECK=messages: always
ROW = wire.START.size + 9 * wire.AXES  # bytes of a header, with the room that it does not use
ALIGNMENT = 64  # bytes: each array of a message begins at a multiple, so that NumPy reads it at full speed
NOTHING = np.empty(0, np.uint8)


def allreduce(comm: MPIComm, x: Array, operator: Operator = np.add) -> Array:
    """The sum of ``x`` over all ranks; raises ValueError, naming two ranks, if shape or dtype differ.

    This is checked up to 4 KB, or always with MINIGRAD_CHECK=messages. Other operators are left to ours.
    """
    if operator is not np.add:
        return collectives.naive_allreduce(comm, x, operator)
    if x.nbytes <= CHECKED or checks("messages"):
        comm.check_same(f"{x.dtype}{x.shape}", "all-reduce")
    return comm.start_allreduce(x)()


def broadcast(comm: MPIComm, x: Array, root: int = 0) -> Array:
    """Rank ``root``'s ``x`` on every rank; the root gets ``x`` itself."""
    check_peer(comm, root)
    what = f"for all ranks to broadcast from rank {comm.members[root]}"
    row, memory = header_and_memory(x) if comm.rank == root else (np.empty(ROW, np.uint8), NOTHING)
    finish(comm, comm.mpi.Ibcast(row, root), what, [comm.members[root]])
    if comm.rank != root:
        memory = np.empty(header_of(row).nbytes, np.uint8)
    finish(comm, comm.mpi.Ibcast(memory, root), what)
    return x if comm.rank == root else array_of(row, memory)


def scatter(comm: MPIComm, parts: Sequence[Array] | None, root: int = 0) -> Array:
    """Rank ``root``'s ``parts[k]`` on rank k; arrays of any shapes, None elsewhere than on the root."""
    check_peer(comm, root)
    what = f"for all ranks to scatter from rank {comm.members[root]}"
    message = Message(comm.size)
    if comm.rank == root:
        message = Message.of(check_parts(parts, comm.size, "a scatter"), besides=root)
    row = np.empty(ROW, np.uint8)
    finish(comm, comm.mpi.Iscatter(message.rows, row, root), what, [comm.members[root]])
    memory = np.empty(0 if comm.rank == root else header_of(row).nbytes, np.uint8)
    finish(comm, comm.mpi.Iscatterv(message.buffer, memory, root), what)
    return parts[root] if parts is not None and comm.rank == root else array_of(row, memory)


def gather(comm: MPIComm, x: Array, root: int = 0) -> list[Array]:
    """Every rank's ``x``, of any shape, by rank, on rank ``root``; an empty list elsewhere."""
    check_peer(comm, root)
    what = f"for all ranks to gather on rank {comm.members[root]}"
    message, (row, memory) = Message(comm.size), header_and_memory(x)
    finish(comm, comm.mpi.Igather(row, message.rows, root), what)
    if comm.rank == root:
        message.allocate(besides=root)
        memory = NOTHING
    finish(comm, comm.mpi.Igatherv(memory, message.buffer, root), what)
    return message.arrays(x, root) if comm.rank == root else []


def allgather(comm: MPIComm, x: Array) -> list[Array]:
    """Every rank's ``x``, of any shape, by rank, on every rank; its own is ``x`` itself."""
    what = "for all ranks to all-gather"
    message, (row, memory) = Message(comm.size), header_and_memory(x)
    finish(comm, comm.mpi.Iallgather(row, message.rows), what, comm.members)
    message.allocate()
    finish(comm, comm.mpi.Iallgatherv(memory, message.buffer), what)
    return message.arrays(x, comm.rank)


def reduce_scatter(comm: MPIComm, parts: Sequence[Array], operator: Operator = np.add) -> Array:
    """The sum over all ranks of their ``parts[k]``, on rank k; part k has one shape on all ranks.

    Raises ValueError, naming two ranks, if shapes or dtypes differ between ranks. Other operators, and
    numbers that MPI cannot add, are left to ours.
    """
    parts = check_parts(parts, comm.size, "a reduce-scatter")
    comm.check_same(", ".join(f"{part.dtype}{part.shape}" for part in parts), "reduce-scatter")
    dtypes = {part.dtype for part in parts}
    if operator is not np.add or len(dtypes) > 1 or not can_add(parts[0].dtype):
        return collectives.reduce_scatter(comm, parts, operator)
    like = parts[comm.rank]
    sent, total = comm.pinned.flat_copy(parts), comm.pinned.empty(like, like.size)
    request = comm.mpi.Ireduce_scatter(sent, total, [part.size for part in parts])
    finish(comm, request, "for all ranks to reduce-scatter", comm.members)
    result = in_shape_of(like, array_module(like).asarray(total))
    comm.pinned.give_back(sent, total)
    return result


def alltoall(comm: MPIComm, parts: Sequence[Array]) -> list[Array]:
    """What every rank had for this one, by rank; any shapes. Its part for itself it gets as it is."""
    what = "for all ranks to exchange all-to-all"
    sent = Message.of(check_parts(parts, comm.size, "an all-to-all"), besides=comm.rank)
    received = Message(comm.size)
    finish(comm, comm.mpi.Ialltoall(sent.rows, received.rows), what, comm.members)
    received.allocate(besides=comm.rank)
    finish(comm, comm.mpi.Ialltoallv(sent.buffer, received.buffer), what)
    return received.arrays(parts[comm.rank], comm.rank)


def barrier(comm: MPIComm) -> None:
    """Nobody goes on before everyone has come."""
    comm.barrier_with("for all ranks to come to a barrier")


COLLECTIVES: Mapping[Callable[..., Any], Callable[..., Any]] = {
    collectives.allreduce: allreduce,
    collectives.broadcast: broadcast,
    collectives.scatter: scatter,
    collectives.gather: gather,
    collectives.allgather: allgather,
    collectives.reduce_scatter: reduce_scatter,
    collectives.alltoall: alltoall,
    collectives.barrier: barrier,
}
"""MPI's form of each of ours."""


class Message:
    """One array for each rank, or from each: a row for each header, and the memory of all of them.

    ``pieces`` are each rank's bytes. ``buffer`` is MPI's name for them: all the memory, and where how many
    bytes start.
    """

    def __init__(self, ranks: int):
        self.rows = np.zeros((ranks, ROW), np.uint8)
        self.buffer = NOTHING, ([0] * ranks, [0] * ranks)
        self.pieces: list[np.ndarray] = []

    @classmethod
    def of(cls, parts: Sequence[Array], besides: int) -> Message:
        """``parts``, but without the memory of part ``besides``, which stays on its rank."""
        message, memories = cls(len(parts)), []
        for rank, part in enumerate(parts):
            message.rows[rank], memory = header_and_memory(part)
            memories.append(memory)
        message.allocate(besides)
        for piece, memory in zip(message.pieces, memories, strict=True):
            piece[:] = memory[: len(piece)]
        return message

    def allocate(self, besides: int | None = None) -> None:
        """Make room for the arrays of the headers, but for that of rank ``besides``."""
        sizes = [0 if rank == besides else header_of(row).nbytes for rank, row in enumerate(self.rows)]
        *starts, total = accumulate((-(-size // ALIGNMENT) * ALIGNMENT for size in sizes), initial=0)
        memory = np.empty(total, np.uint8)
        self.buffer = memory, (sizes, starts)
        self.pieces = [memory[start : start + size] for start, size in zip(starts, sizes, strict=True)]

    def arrays(self, own: Array, rank: int) -> list[Array]:
        """The arrays by rank; that of ``rank`` is ``own``."""
        rows = zip(self.rows, self.pieces, strict=True)
        return [own if k == rank else array_of(row, piece) for k, (row, piece) in enumerate(rows)]


def finish(comm: MPIComm, request: Any, what: str, needs: Sequence[int] = ()) -> None:
    """Wait for a call of MPI; if that fails, its memory is kept, because MPI may still write there."""
    try:
        comm.wait(request.Test, what, needs)
    except BaseException:
        comm.lost.append(request)
        raise


def header_and_memory(x: Array) -> tuple[np.ndarray, np.ndarray]:
    """A row with the header of ``x``, and its memory as bytes on the host; a copy where ``x`` has gaps."""
    xp = array_module(x)
    base, order = wire.in_memory_order(x)
    header = wire.Header(base.dtype, base.shape, order, xp is not np).to_bytes()
    host = base if xp is np else wire.to_pinned_host(base)
    return np.frombuffer(header.ljust(ROW, b"\0"), np.uint8), host.reshape(-1).view(np.uint8)


def header_of(row: np.ndarray) -> wire.Header:
    return wire.Header.read(row.tobytes())[0]


def array_of(row: np.ndarray, memory: np.ndarray) -> Array:
    """The array with this header and memory, in its own memory order and on its own kind of device."""
    header = header_of(row)
    x = memory.view(header.dtype).reshape(header.shape)
    return (to_device(x, "cupy") if header.on_device else x).transpose(np.argsort(header.order))


def can_add(dtype: np.dtype) -> bool:
    """Whether MPI has sums of such numbers; ValueError where their bytes are in another machine's order."""
    if not dtype.isnative:
        raise ValueError(
            f"MPI cannot add numbers of dtype {dtype}, whose bytes are in another order than this machine's; "
            "convert them with x.astype(x.dtype.newbyteorder('='))"
        )
    return dtype.kind in "iufc" and dtype != np.float16
