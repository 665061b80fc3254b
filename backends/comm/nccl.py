"""Collectives that move arrays from GPU to GPU by NVIDIA's NCCL, over ranks that are MPI processes.

Its calls were tried on a double of ``cupy.cuda.nccl`` only: it has never run on two GPUs.
Lecture section: GPU against CPU.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from minigrad.checked_entries import checks
from minigrad.device import Array, array_module, cuda_problem, loaded_cuda, nccl, on_gpu, to_device

from . import collectives, wire
from .collectives import Operator
from .collectives.blocks import check_parts, in_shape_of
from .collectives.send_recv import check_peer
from .communicator import Wrapper
from .mpi_collectives import CHECKED
from .shared_memory_allreduce import check_same_text, to_text

if TYPE_CHECKING:
    from .mpi import MPIComm

DTYPES = ("int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64")
"""NCCL's dtypes, by their numbers."""
OPERATORS: Mapping[Operator, int] = {np.add: 0, np.maximum: 2, np.minimum: 3}
"""NCCL's numbers of operators; 1 is the product."""
MPI_INSTEAD = "use --transport mpi, by which arrays pass through the host"


class NcclComm(Wrapper):
    """``comm``, whose ranks have a GPU each, with the collectives of arrays on GPUs by NCCL.

    They are the all-reduce, also started, the broadcast, and the reduce-scatter and all-gather of parts of
    one size. ``comm`` does all else: messages, other dtypes and operators, arrays of the host, and everything
    where ranks share a GPU. NCCL's maximum of a number and NaN may be the number.

    A process makes NCCL's calls one after another on a stream for communication, each after what the GPU was
    asked for before. The rank waits for a result on the host, because only such a wait has a limit.
    """

    comm: MPIComm

    def __init__(self, comm: Any):
        super().__init__(comm)
        self.has_own_allreduce = self.sums_alone = True
        self.own_collectives = {**comm.own_collectives, **COLLECTIVES}
        self.links: list[Any] = []  # one or none
        self.in_flight: dict[Any, Sequence[Array]] = {}  # the memory of each call, by the event of its end
        self.ranks = f"ranks {', '.join(map(str, self.members))}"

    @property
    def link(self) -> Any:
        """NCCL's communicator of all ranks, which ask for it together; None where ranks share a GPU."""
        if not self.links:  # a cached_property of Python 3.11 lets one rank on threads in at a time
            self.links.append(self.connect())
        return self.links[0]

    def connect(self) -> Any:
        gpu = loaded_cuda().Device()
        if len(set(self.exchange(f"{self.nodes[self.rank]} {gpu.pci_bus_id}"))) < self.size:
            if self.members[self.rank] == 0:
                report_shared_gpu()
            return None
        number = np.frombuffer(nccl().get_unique_id(), np.uint8)
        number = self.comm.collective(collectives.broadcast, number)
        link: Future[Any] = Future()

        def connect() -> None:
            try:
                with gpu:
                    link.set_result(nccl().NcclCommunicator(self.size, number.tobytes(), self.rank))
            except Exception as error:
                link.set_exception(error)

        threading.Thread(target=connect, daemon=True).start()  # it would wait for ever for a rank that ended
        self.comm.wait(link.done, f"for {self.ranks} to connect by NCCL", self.members)
        return link.result()

    def split(self, color: int, key: int | None = None) -> NcclComm:
        return NcclComm(self.comm.split(color, key))

    def close(self) -> None:
        self.comm.close()
        if any(self.links):
            self.links.pop().destroy()

    def collective(self, ours: Callable[..., Any], /, *arguments: Any, **named: Any) -> Any:
        own = COLLECTIVES.get(ours)
        result = NotImplemented if own is None else own(self, *arguments, **named)
        return self.comm.collective(ours, *arguments, **named) if result is NotImplemented else result

    def allreduce(self, x: Array) -> Array:
        return self.collective(collectives.allreduce, x)

    def start_allreduce(self, x: Array) -> Callable[[], Array]:
        if not can_take(self, x) or self.link is None:
            return self.comm.start_allreduce(x)
        return self.start_sum(x, np.add)

    # Helpers of the above

    def exchange(self, text: str) -> list[bytes]:
        """The texts of all ranks."""
        rows = self.comm.collective(collectives.allgather, np.frombuffer(to_text(text), np.uint8))
        return [row.tobytes() for row in rows]

    def start_sum(self, x: Array, operator: Operator) -> Callable[[], Array]:
        """Start to combine ``x`` of all ranks; the function returned waits for the result."""
        sent = array_module(x).ascontiguousarray(x).reshape(-1)
        total = array_module(x).empty_like(sent)
        what = f"all-reduce {x.dtype}{x.shape}"
        finish = self.start("allReduce", what, sent, total, total.size, OPERATORS[operator])
        return lambda: in_shape_of(x, finish())

    def start(self, call: str, what: str, sent: Array, result: Array, n: int, *more: int) -> Callable:
        """Start NCCL's ``call`` from one array into another; the function returned waits for the result.

        It raises TimeoutError as every wait of MPI, RuntimeError if NCCL reports that it failed.
        """
        stream = stream_of(loaded_cuda().Device().id)
        stream.wait_event(loaded_cuda().get_current_stream().record())
        numbers = n, DTYPES.index(sent.dtype.name), *more
        getattr(self.link, call)(sent.data.ptr, result.data.ptr, *numbers, stream.ptr)
        event = stream.record()
        self.in_flight[event] = sent, result
        forget = self.comm.remember_pending(f"to {what} by NCCL")

        def finish() -> Array:
            forget()
            try:
                self.comm.wait(lambda: self.has_ended(event), f"for {self.ranks} to {what}", self.members)
            except BaseException:
                self.link.abort()
                raise
            self.in_flight.pop(event, None)
            return result

        return finish

    def has_ended(self, event: Any) -> bool:
        try:
            self.link.check_async_error()
        except Exception as error:
            text = f"NCCL failed between {self.ranks} ({error})"
            raise RuntimeError(f"{text}; make all ranks make the same calls, or {MPI_INSTEAD}") from error
        return event.done


def can_take(comm: NcclComm, *arrays: Array, operator: Operator = np.add) -> bool:
    """Whether NCCL can combine such arrays."""
    fit = all(on_gpu(x) and x.size and x.dtype.name in DTYPES for x in arrays)
    return fit and comm.size > 1 and operator in OPERATORS


def allreduce(comm: NcclComm, x: Array, operator: Operator = np.add) -> Array:
    """MPI compares the shapes of arrays up to 4 KB first, or with MINIGRAD_CHECK=messages all shapes."""
    if not can_take(comm, x, operator=operator) or comm.link is None:
        return NotImplemented
    if x.nbytes <= CHECKED or checks("messages"):
        check_same_text(comm.exchange(f"{x.dtype}{x.shape}"), comm.members)
    return comm.start_sum(x, operator)()


def broadcast(comm: NcclComm, x: Array, root: int = 0) -> Array:
    """The header goes by MPI, empty where NCCL cannot take the array."""
    check_peer(comm, root)
    first, base = b"", x
    if comm.rank == root and can_take(comm, x):
        base, order = wire.in_memory_order(x)
        first = wire.Header(base.dtype, base.shape, order, True).to_bytes()
    first = comm.comm.collective(collectives.broadcast, np.frombuffer(first, np.uint8), root)
    if not first.size or comm.link is None:
        return NotImplemented
    header, _ = wire.Header.read(first.tobytes())
    memory = base
    if comm.rank != root:
        memory = array_module(to_device(np.empty(0), "cupy")).empty(header.size, header.dtype)
    comm.start("broadcast", f"broadcast from rank {comm.members[root]}", memory, memory, header.size, root)()
    return x if comm.rank == root else wire.finish(memory, header)


def allgather(comm: NcclComm, x: Array) -> list[Array]:
    base, order = wire.in_memory_order(x)
    texts = comm.exchange(f"{base.dtype}{base.shape}{order}" if can_take(comm, x) else f"{comm.rank}")
    if len(set(texts)) > 1 or comm.size == 1 or comm.link is None:
        return NotImplemented
    rows = array_module(x).empty((comm.size, *base.shape), base.dtype)
    comm.start("allGather", f"all-gather {x.dtype}{x.shape}", base, rows, base.size)()
    back = np.argsort(order).tolist()
    return [x if rank == comm.rank else row.transpose(back) for rank, row in enumerate(rows)]


def reduce_scatter(comm: NcclComm, parts: Sequence[Array], operator: Operator = np.add) -> Array:
    parts, like = check_parts(parts, comm.size, "a reduce-scatter"), parts[comm.rank]
    if not can_take(comm, *parts, operator=operator) or len({(x.size, x.dtype) for x in parts}) > 1:
        return NotImplemented
    texts = comm.exchange(", ".join(f"{part.dtype}{part.shape}" for part in parts))
    check_same_text(texts, comm.members, "reduce-scatter")
    if comm.link is None:
        return NotImplemented
    sent = array_module(like).concatenate([part.reshape(-1) for part in parts])
    total = array_module(like).empty(like.size, like.dtype)
    what = f"reduce-scatter {like.dtype}{like.shape}"
    finish = comm.start("reduceScatter", what, sent, total, total.size, OPERATORS[operator])
    return in_shape_of(like, finish())


COLLECTIVES: Mapping[Callable[..., Any], Callable[..., Any]] = {
    collectives.allreduce: allreduce,
    collectives.broadcast: broadcast,
    collectives.allgather: allgather,
    collectives.reduce_scatter: reduce_scatter,
}
"""NCCL's form of ours; NotImplemented, on all ranks alike, where it has none for such arrays."""


@cache
def stream_of(gpu: int) -> Any:
    """The stream for communication of GPU number ``gpu``, which is the current one."""
    return loaded_cuda().Stream(non_blocking=True)


@cache
def report_shared_gpu() -> None:
    text = "several ranks share a GPU, which NCCL refuses, so their arrays pass through the host by MPI"
    print(f"minigrad: {text}", file=sys.stderr, flush=True)


def nccl_problem() -> str | None:
    """Why NCCL cannot be used, with the way out; None when it can."""
    if problem := cuda_problem():
        return f"{problem} and --transport mpi"
    install = "pip install 'minigrad-course[nccl12]' (or nccl13)"
    return None if nccl().available else f"CuPy finds no NCCL; {install}, or {MPI_INSTEAD}"
