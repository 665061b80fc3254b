"""What every communicator offers: messages, which each transport defines, and abilities with a default.

A new transport derives from ``Communicator``, sets ``rank``, ``size`` and ``members`` and defines the
abstract methods; ``tests/backends/comm/conformance.py`` tests it. A communicator that changes a part of
another one derives from ``Wrapper``.
"""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cached_property
from operator import methodcaller
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar, cast

import numpy as np

from minigrad.device import Array
from minigrad.tensor_base import as_array

from .collectives.naive import gather, naive_allreduce, scatter
from .collectives.pairwise import alltoall, barrier
from .collectives.ring import allgather
from .collectives.send_recv import Operator
from .collectives.tree import broadcast, reduce
from .shared_memory import SharedMemory

if TYPE_CHECKING:
    from .background import Background
    from .recoverable import Recoverable

Method = TypeVar("Method", bound=Callable[..., Any])
NOTHING: Mapping[int, int] = MappingProxyType({})
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class RankEnded(RuntimeError):
    """A watched rank has ended: its process was killed, or its program returned."""

    def __init__(self, rank: int, what: str, reason: str = "it ended without a message"):
        text = f"rank {rank}, which this rank watches, ended while this rank waited {what}"
        super().__init__(f"{text}: {reason}")
        self.rank, self.reason = rank, reason


class Communicator(ABC):
    """Ranks that send arrays to one another; messages with the same source and tag keep their order.

    ``rank`` is this rank's number, 0 to ``size`` - 1; ``members`` are all ranks' numbers in the world. A
    transport inherits a working form of every ability that it lacks. ``has_own_allreduce`` says that
    ``allreduce`` is the transport's own, as MPI's is, and not made of this communicator's messages.
    ``own_collectives`` holds the transport's own forms of ours, which ``collective`` calls. With
    ``sums_alone`` a started all-reduce of arrays on GPUs goes on while the rank computes.
    """

    rank: int
    size: int
    members: list[int]
    has_own_allreduce: bool = False
    sums_alone: bool = False
    own_collectives: Mapping[Callable[..., Any], Callable[..., Any]] = MappingProxyType({})

    def __repr__(self) -> str:
        return f"{type(self).__name__}(rank {self.rank} of {self.size})"

    @abstractmethod
    def send(self, x: Array, to: int, tag: int = 0) -> None:
        """Send a copy of ``x``; returns at once, and ``x`` may be changed afterwards."""

    @abstractmethod
    def start_send(self, x: Array, to: int, tag: int = 0) -> Callable[[], None]:
        """Start to send ``x`` itself; ``x`` must not change until the returned function has been called."""

    @abstractmethod
    def recv(self, source: int, tag: int = 0, expect: Array | None = None) -> Array:
        """The next array from ``source`` with ``tag``, in new memory; shape and dtype come with it.

        Raises TimeoutError, which names both ranks, after ``wait_limit()`` seconds, and ValueError if
        ``expect`` is given and the array that came has another shape or dtype.
        """

    @abstractmethod
    def start_recv(self, source: int, tag: int = 0, expect: Array | None = None) -> Callable[[], Array]:
        """Like ``recv``, but returns at once a function that finishes the receive."""

    @abstractmethod
    def recv_any(self, tag: int = 0) -> tuple[int, Array]:
        """Wait for an array with ``tag`` from any rank; returns its source and the array."""

    @abstractmethod
    def split(self, color: int, key: int | None = None) -> Communicator:
        """The group of the ranks that pass the same ``color``, ordered by ``key`` (by default their rank)."""

    @abstractmethod
    def background(self) -> Background:
        """A communication thread of this rank, over the same ranks; all ranks must call this together."""

    @abstractmethod
    def close(self) -> None:
        """End communication; free it, its groups and backgrounds. All ranks must call this together.

        A group or background that a program only drops is freed once all ranks have dropped it.
        """

    def __deepcopy__(self, memo: object) -> Self:
        """The communicator itself: a copied layer exchanges messages with the same ranks."""
        return self

    @property
    def local_rank(self) -> int:
        """This rank's number among the ranks on its machine: the GPU that it takes."""
        return self.rank

    @cached_property
    def nodes(self) -> list[int]:
        """The number of the machine that each rank is on; all ranks ask for it together."""
        return [0] * self.size

    def subgroup(self, ranks: Sequence[int]) -> Communicator:
        """Some ``ranks``, numbered anew, which send messages of this communicator; only they call."""
        return Subgroup(self, ranks)

    def use_synchronous_sends(self) -> None:
        """From now on let each send wait for its receiver, if the transport can: this exposes deadlocks."""

    # Collectives; those with mpi4py's names are short for the functions of ``collectives``

    def collective(
        self,
        ours: Callable[Concatenate[Communicator, Arguments], Result],
        /,
        *arguments: Arguments.args,
        **named: Arguments.kwargs,
    ) -> Result:
        """``ours(comm, *arguments)``, such as ``collectives.broadcast``, by the transport's own form of it.

        Where there is none, it is made of this communicator's messages.
        """
        return self.own_collectives.get(ours, ours)(self, *arguments, **named)

    def allreduce(self, x: Array) -> Array:
        """The sum of ``x`` over all ranks, on every rank."""
        return naive_allreduce(self, x)

    def barrier(self) -> None:
        """Wait until all ranks have come here."""
        self.collective(barrier)

    def bcast(self, x: Any, root: int = 0) -> Array:
        """Rank ``root``'s array or number on every rank; what other ranks pass is not looked at."""
        return self.collective(broadcast, as_array(x) if self.rank == root else np.zeros(0), root)

    def reduce(self, x: Any, op: Operator = np.add, root: int = 0) -> Array | None:
        """The sum of ``x`` over all ranks, or what ``op`` combines, on rank ``root``; None elsewhere."""
        return self.collective(reduce, as_array(x), op, root)

    def gather(self, x: Any, root: int = 0) -> list[Array] | None:
        """Every rank's ``x``, of any shape, by rank, on rank ``root``; None elsewhere."""
        arrays = self.collective(gather, as_array(x), root)
        return arrays if self.rank == root else None

    def allgather(self, x: Any) -> list[Array]:
        """Every rank's ``x``, of any shape, by rank, on every rank."""
        return self.collective(allgather, as_array(x))

    def scatter(self, parts: Sequence[Any] | None, root: int = 0) -> Array:
        """Rank ``root``'s ``parts[k]`` on rank k; of any shapes, None elsewhere than on the root."""
        arrays = [as_array(part) for part in parts or ()] if self.rank == root else None
        return self.collective(scatter, arrays, root)

    def alltoall(self, parts: Sequence[Any]) -> list[Array]:
        """What every rank had for this one, by rank: rank k's ``parts[j]`` becomes rank j's k-th."""
        return self.collective(alltoall, [as_array(part) for part in parts])

    def start_allreduce(self, x: Array) -> Callable[[], Array]:
        """Start to sum ``x`` over all ranks; the function returned finishes it, by default does all of it."""
        return lambda: self.allreduce(x)

    def progress(self) -> None:
        """Let started communication go on, if the transport needs this rank for it."""

    def charge_reduction(self, nbytes: int) -> None:
        """Account for combining two arrays of ``nbytes``: this takes time on a virtual clock."""
        if seconds := self.reduction_seconds(nbytes):
            self.compute(seconds)

    # Memory

    def array(self, shape: int | Sequence[int], dtype: Any = np.float32) -> np.ndarray:
        """Zeros that ``allreduce`` sums without a copy, if it can; all ranks pass the same shape together."""
        return np.zeros(shape, dtype)

    def share(self, nbytes: int) -> SharedMemory | None:
        """``nbytes`` of this rank that all ranks read and write; None where ranks cannot share memory.

        All ranks must call this together; their ``nbytes`` may differ.
        """
        return None

    # Time

    def time(self) -> float:
        """This rank's clock, in seconds."""
        return time.perf_counter()

    def compute(self, seconds: float) -> None:
        """Pretend to compute for ``seconds`` on a virtual clock; on a real clock this takes no time."""

    def reduction_seconds(self, nbytes: int) -> float:
        """Seconds on a virtual clock for combining two arrays of ``nbytes``; 0 on a real clock."""
        return 0.0

    def computing(self, name: str) -> AbstractContextManager[None]:
        """``with comm.computing("forward"):`` records a span of that name, if ``comm`` is traced."""
        return nullcontext()

    # Failures

    def watch(self, ranks: Iterable[int], owing: Mapping[int, int] = NOTHING) -> None:
        """From now on a wait raises RankEnded where one of ``ranks`` has ended, if the transport can tell.

        ``owing`` gives ranks that have to send something, each with its number: a transport may kill those
        that stay silent for ``wait_limit()`` seconds. The first time all ranks call this together.
        """

    def recoverable(self) -> Recoverable:
        """A communicator of these ranks from which those that died can be removed; all ranks call.

        Raises RuntimeError, with the way out, where a rank's death ends the job.
        """
        raise RuntimeError(
            f"ranks of {type(self).__name__} cannot go on without one that died; use threads, or MPI "
            "processes of Open MPI"
        )


def passed_on(method: Method) -> Method:
    """``method`` of the communicator that a wrapper wraps."""

    def call(wrapper: Wrapper, *arguments: Any, **named: Any) -> Any:
        return methodcaller(method.__name__, *arguments, **named)(wrapper.comm)

    return cast(Any, call)


class Wrapper(Communicator):
    """``comm`` with every ability passed on; a subclass changes some of them."""

    def __init__(self, comm: Communicator):
        self.comm, self.rank, self.size, self.members = comm, comm.rank, comm.size, comm.members
        self.has_own_allreduce, self.own_collectives = comm.has_own_allreduce, comm.own_collectives
        self.sums_alone = comm.sums_alone

    send = passed_on(Communicator.send)
    start_send = passed_on(Communicator.start_send)
    recv = passed_on(Communicator.recv)
    start_recv = passed_on(Communicator.start_recv)
    recv_any = passed_on(Communicator.recv_any)
    split = passed_on(Communicator.split)
    background = passed_on(Communicator.background)
    close = passed_on(Communicator.close)
    use_synchronous_sends = passed_on(Communicator.use_synchronous_sends)
    progress = passed_on(Communicator.progress)
    array = passed_on(Communicator.array)
    share = passed_on(Communicator.share)
    time = passed_on(Communicator.time)
    compute = passed_on(Communicator.compute)
    reduction_seconds = passed_on(Communicator.reduction_seconds)
    computing = passed_on(Communicator.computing)
    watch = passed_on(Communicator.watch)
    recoverable = passed_on(Communicator.recoverable)

    @property
    def local_rank(self) -> int:
        return self.comm.local_rank

    @cached_property
    def nodes(self) -> list[int]:
        return self.comm.nodes

    def collective(self, ours: Callable[..., Any], /, *arguments: Any, **named: Any) -> Any:
        if ours in self.own_collectives:
            return self.comm.collective(ours, *arguments, **named)
        return ours(self, *arguments, **named)

    def allreduce(self, x: Array) -> Array:
        return self.comm.allreduce(x) if self.has_own_allreduce else super().allreduce(x)

    def start_allreduce(self, x: Array) -> Callable[[], Array]:
        return self.comm.start_allreduce(x) if self.has_own_allreduce else super().start_allreduce(x)


class WithAllreduce(Wrapper):
    """``comm`` whose all-reduce is ``algorithm``, such as ``collectives.ring_allreduce``."""

    def __init__(self, comm: Communicator, algorithm: Callable[[Communicator, Array], Array]):
        super().__init__(comm)
        self.algorithm, self.has_own_allreduce, self.sums_alone = algorithm, True, False

    def allreduce(self, x: Array) -> Array:
        return self.algorithm(self.comm, x)

    def start_allreduce(self, x: Array) -> Callable[[], Array]:
        return lambda: self.allreduce(x)


class Subgroup(Wrapper):
    """The ``ranks`` of ``comm``, numbered anew; every collective is made of their messages."""

    def __init__(self, comm: Communicator, ranks: Sequence[int]):
        super().__init__(comm)
        self.ranks, self.members = ranks, [comm.members[rank] for rank in ranks]
        self.rank, self.size = ranks.index(comm.rank), len(ranks)
        self.has_own_allreduce, self.own_collectives, self.sums_alone = False, {}, False

    def send(self, x: Array, to: int, tag: int = 0) -> None:
        self.comm.send(x, self.ranks[to], tag)

    def start_send(self, x: Array, to: int, tag: int = 0) -> Callable[[], None]:
        return self.comm.start_send(x, self.ranks[to], tag)

    def recv(self, source: int, tag: int = 0, expect: Array | None = None) -> Array:
        return self.comm.recv(self.ranks[source], tag, expect)

    def start_recv(self, source: int, tag: int = 0, expect: Array | None = None) -> Callable[[], Array]:
        return self.comm.start_recv(self.ranks[source], tag, expect)


def check_expected(x: Array, expect: Array | None, source: int, rank: int, tag: int) -> Array:
    """``x`` as received; raises ValueError, naming both sides, unless it has ``expect``'s shape and dtype."""
    if expect is not None and (x.shape, x.dtype) != (expect.shape, expect.dtype):
        raise ValueError(
            f"rank {source} sent {x.dtype}{x.shape} with tag {tag}, rank {rank} expected "
            f"{expect.dtype}{expect.shape}; make both sides agree"
        )
    return x


def wait_limit() -> float:
    """Seconds after which a wait gives up: the environment variable MINIGRAD_TIMEOUT, by default 600."""
    text = os.environ.get("MINIGRAD_TIMEOUT", "600")
    with suppress(ValueError):
        if (limit := float(text)) > 0:
            return limit
    raise ValueError(f"MINIGRAD_TIMEOUT must be a number of seconds above 0, got {text!r}")
