"""What every transport offers. A rank knows its number and how many there are; it sends and receives, and
may do so in the background while it computes.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Protocol, TypeVar, runtime_checkable

from minigrad.device import Array

Result = TypeVar("Result")


class RankEnded(RuntimeError):
    """``rank``, which was watched, has ended: its process was killed, or its program returned; and why."""

    def __init__(self, rank: int, what: str, reason: str = "it ended without a word"):
        text = f"rank {rank} has ended, for which this rank watched while it waited {what}"
        super().__init__(f"{text}: {reason}")
        self.rank, self.reason = rank, reason


@runtime_checkable
class Comm(Protocol):
    """Ranks that can send arrays to one another; messages of one (source, tag) keep their order."""

    @property
    def rank(self) -> int:
        """This rank's number, 0 to size - 1."""
        ...

    @property
    def size(self) -> int:
        """How many ranks there are."""
        ...

    def send(self, x: Array, to: int, tag: int = 0) -> None:
        """Send a copy of ``x``; returns at once, and ``x`` may be changed afterwards."""
        ...

    def start_send(self, x: Array, to: int, tag: int = 0) -> Callable[[], None]:
        """Start to send ``x`` itself; call what is returned to finish, and leave ``x`` alone until then."""
        ...

    def recv(self, source: int, tag: int = 0, like: Array | None = None) -> Array:
        """The next array from ``source`` with ``tag``, in memory of its own; shape and dtype come with it.

        Raises TimeoutError, saying who waited for whom, after ``wait_limit()`` seconds; ValueError, naming
        both sides, where ``like`` is given and its shape or dtype is another than what came.
        """
        ...

    def start_recv(self, source: int, tag: int = 0, like: Array | None = None) -> Callable[[], Array]:
        """Like ``recv``, but returns at once a function that finishes it."""
        ...

    def recv_any(self, tag: int = 0) -> tuple[int, Array]:
        """Wait for an array with ``tag`` from whoever sends one; the source and the array."""
        ...

    def split(self, color: int, key: int | None = None) -> Comm:
        """The group of the ranks that pass the same ``color``, ordered by ``key`` (their rank by default)."""
        ...

    def background(self) -> Background:
        """A communication thread of this rank, over the same ranks; all ranks must call this together."""
        ...

    def close(self) -> None:
        """No more communication with it: free it, and what was made of it; all ranks must call this together.

        What a rank only drops, a group or a background, is freed once all ranks have dropped it.
        """
        ...


class Background(Protocol):
    """Communication while the rank computes: jobs that run one after another, in the order they were started.

    A job gets a communicator of its own over the same ranks, so that its messages do not mix with the rank's;
    the n-th job of one rank talks to the n-th job of the others. After one that raised, none is run any more.
    """

    def start(
        self, job: Callable[[Comm], Result], what: str = "communication", nbytes: int = 0
    ) -> Callable[[], Result]:
        """Start ``job(comm)``, ``what`` with ``nbytes`` in errors and traces; returns at once.

        Call what is returned for the job's result: it waits for it, and raises what the job, or one
        before it, raised. Leave alone what the job reads until then.
        """
        ...

    def close(self) -> None:
        """No more jobs: the thread ends after those that were started. May be called again."""
        ...


def check_like(x: Array, like: Array | None, source: int, rank: int, tag: int) -> Array:
    """``x`` as it came; raises ValueError, naming both sides, unless it has ``like``'s shape and dtype."""
    if like is not None and (x.shape, x.dtype) != (like.shape, like.dtype):
        raise ValueError(
            f"rank {source} sent {x.dtype}{x.shape} with tag {tag}, rank {rank} expected "
            f"{like.dtype}{like.shape}; make both sides agree"
        )
    return x


def wait_limit() -> float:
    """Seconds after which a wait gives up: the variable MINIGRAD_TIMEOUT, or 600."""
    given = os.environ.get("MINIGRAD_TIMEOUT", "600")
    try:
        limit = float(given)
    except ValueError:
        limit = 0.0
    if not limit > 0:
        raise ValueError(f"MINIGRAD_TIMEOUT must be a number of seconds above 0, got {given!r}")
    return limit


def check_peer(comm: Comm, peer: int) -> None:
    """Raise ValueError unless ``peer`` is one of the communicator's ranks."""
    if not 0 <= peer < comm.size:
        raise ValueError(f"rank {peer} does not exist; this communicator has ranks 0 to {comm.size - 1}")
