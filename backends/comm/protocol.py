"""Point-to-point messages between ranks: all that the collectives need.

``communicator.Communicator`` is the whole contract of a transport, with defaults for what is optional.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable
from typing import Protocol

from minigrad.device import Array


class RankEnded(RuntimeError):
    """A watched rank has ended: its process was killed, or its program returned."""

    def __init__(self, rank: int, what: str, reason: str = "it ended without a message"):
        text = f"rank {rank}, which this rank watches, ended while this rank waited {what}"
        super().__init__(f"{text}: {reason}")
        self.rank, self.reason = rank, reason


class Comm(Protocol):
    """Ranks that send arrays to one another; messages with the same source and tag keep their order.

    ``rank`` is this rank's number, 0 to ``size`` - 1.
    """

    rank: int
    size: int

    @abstractmethod
    def send(self, x: Array, to: int, tag: int = 0) -> None:
        """Send a copy of ``x``; returns at once, and ``x`` may be changed afterwards."""

    @abstractmethod
    def start_send(self, x: Array, to: int, tag: int = 0) -> Callable[[], None]:
        """Start to send ``x`` itself; ``x`` must not change until the returned function has been called."""

    @abstractmethod
    def recv(self, source: int, tag: int = 0, expect: Array | None = None) -> Array:
        """The next array from ``source`` with ``tag``, in memory of its own; shape and dtype come with it.

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
    def split(self, color: int, key: int | None = None) -> Comm:
        """The group of the ranks that pass the same ``color``, ordered by ``key`` (by default their rank)."""

    @abstractmethod
    def allreduce(self, x: Array) -> Array:
        """The sum of ``x`` over all ranks, on every rank."""

    @abstractmethod
    def charge_reduction(self, nbytes: int) -> None:
        """Account for combining two arrays of ``nbytes``: this takes time on a virtual clock."""


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
    try:
        limit = float(text)
    except ValueError:
        limit = 0.0
    if not limit > 0:
        raise ValueError(f"MINIGRAD_TIMEOUT must be a number of seconds above 0, got {text!r}")
    return limit


def check_peer(comm: Comm, peer: int) -> None:
    """Raise ValueError unless ``peer`` is one of the communicator's ranks."""
    if not 0 <= peer < comm.size:
        raise ValueError(f"rank {peer} does not exist; this communicator has ranks 0 to {comm.size - 1}")
