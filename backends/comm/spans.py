"""A trace: spans of time, and a ledger of messages and bytes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

COLLECTIVES = ("allreduce", "broadcast", "scatter", "gather",
               "allgather", "reduce_scatter", "alltoall", "barrier")  # fmt: skip
"""Names of the transport's own collectives; ours are made of messages."""
SENT = ("send", "start_send", "start_allreduce", *COLLECTIVES)
RECEIVED = ("recv", "start_recv", "recv_any")
BLOCKING = ("send", "recv", "recv_any", *COLLECTIVES, "split", "post", "wait")  # nothing else runs
COMMUNICATION = frozenset((*SENT, *RECEIVED, *BLOCKING))


def is_started(what: str) -> bool:
    """Whether a span of this name is a started communication, during which the rank may compute."""
    return what.startswith("start_")


def is_communication(what: str) -> bool:
    return what in COMMUNICATION or is_started(what)


class Span(NamedTuple):
    """Something ``rank`` did from ``start`` to ``stop`` (seconds); ``bytes`` are the payload's.

    ``what`` is the communicator's operation, a name given to ``computing``, or for a started
    communication also "post" (busy starting it) and "wait" (blocked in finishing it). ``start_send`` and
    ``start_recv`` themselves last from start to finish, whatever the rank does meanwhile. A job of the
    background is ``start_`` and its name, lasts as long as it ran there, and carries all that it sent.
    """

    rank: int
    what: str
    peer: int | None
    bytes: int
    tag: int | None
    start: float
    stop: float


class Count(NamedTuple):
    messages: int
    bytes: int

    @classmethod
    def total(cls, counts: Iterable[Count]) -> Count:
        return cls(*map(sum, zip((0, 0), *counts, strict=True)))


@dataclass
class Ledger:
    """Messages and payload bytes by (operation, peer), counted when they were sent or had been received.

    A collective of the transport's own counts as one message of the arrays handed over, to no peer.
    """

    counts: dict[tuple[str, int | None], Count] = field(default_factory=dict)

    def add(self, what: str, peer: int | None, nbytes: int, messages: int = 1) -> None:
        before = self.counts.get((what, peer), Count(0, 0))
        self.counts[what, peer] = Count(before.messages + messages, before.bytes + nbytes)

    def sent(self, to: int | None = None) -> Count:
        """Messages and bytes sent to rank ``to``, or to all."""
        return self.total(SENT, to)

    def received(self, source: int | None = None) -> Count:
        """Messages and bytes received from rank ``source``, or from all."""
        return self.total(RECEIVED, source)

    def total(self, operations: Iterable[str], peer: int | None = None) -> Count:
        counts = self.counts.items()
        return Count.total(c for (what, p), c in counts if what in operations and peer in (None, p))


@dataclass(frozen=True)
class Trace:
    """All ranks' spans, each rank's in the order they started, and their ledgers, by rank.

    Times of different ranks agree to ``clock_error`` seconds.
    """

    spans: tuple[Span, ...]
    ledgers: tuple[Ledger, ...]
    clock_error: float = 0.0

    @property
    def size(self) -> int:
        return len(self.ledgers)

    @property
    def start(self) -> float:
        return min((s.start for s in self.spans), default=0.0)

    @property
    def stop(self) -> float:
        return max((s.stop for s in self.spans), default=0.0)

    def sent(self) -> Count:
        """Messages and bytes that all ranks together sent."""
        return Count.total(ledger.sent() for ledger in self.ledgers)

    def exposed(self, rank: int) -> float:
        """Seconds that ``rank`` spent blocked in communication, which no computation hid."""
        return sum(s.stop - s.start for s in self.spans if s.rank == rank and s.what in BLOCKING)


def covered(spans: Iterable[Span]) -> float:
    """The length of the union of the spans' times."""
    total, end = 0.0, float("-inf")
    for span in sorted(spans, key=lambda s: s.start):
        if span.stop > end:
            total += span.stop - max(span.start, end)
            end = span.stop
    return total
