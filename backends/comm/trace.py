"""A communicator that keeps a diary: who did what, when, and sent how much to whom.

``Traced(comm)`` gives every program the results it has without, and records a ``Span`` for each call
and a ``Ledger`` of messages and bytes. ``gather_trace`` brings all ranks' diaries to rank 0; the
drawings are in ``timeline``.
Lecture section: synchronous data parallelism. Lesson: 05_messages.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np

from minigrad.device import Array

from .merge import TAG, gather_trace
from .protocol import Background, Comm, check_peer
from .spans import Count, Ledger, Span, Trace, is_communication

__all__ = ["Count", "Ledger", "Recorder", "Span", "Trace", "Traced", "gather_trace"]

Result = TypeVar("Result")


class Recorder:
    """One rank's diary; a communicator and the groups split from it write into the same."""

    def __init__(self, rank: int, clock: Callable[[], float]):
        self.rank, self.clock = rank, clock
        self.spans: list[Span] = []
        self.ledger = Ledger()
        self.computing: str | None = None  # the innermost name given

    def begin(self, what: str, peer: int | None = None, tag: int | None = None) -> int:
        self.spans.append(Span(self.rank, what, peer, 0, tag, self.clock(), float("nan")))
        return len(self.spans) - 1

    def end(self, i: int) -> None:
        self.spans[i] = self.spans[i]._replace(stop=self.clock())

    def message(self, i: int, nbytes: int) -> None:
        """Span ``i`` has carried a message of ``nbytes``."""
        span = self.spans[i] = self.spans[i]._replace(bytes=nbytes)
        self.ledger.add(span.what, span.peer, nbytes)

    @contextmanager
    def span(self, what: str, peer: int | None = None, tag: int | None = None) -> Iterator[int]:
        i = self.begin(what, peer, tag)
        try:
            yield i
        finally:
            self.end(i)

    def closed(self) -> list[Span]:
        """The spans so far, in the order they started; what is not finished yet ends now."""
        now = self.clock()
        spans = [s._replace(stop=now) if math.isnan(s.stop) else s for s in self.spans]
        return sorted(spans, key=lambda s: s.start)  # a job of the background started after it was posted


class Traced:
    """``comm`` with a diary; every rank of ``comm`` must be traced, or none.

    ``clock`` gives seconds: by default the transport's own (``comm.time``) or the machine's. Peers are
    recorded as ranks of the communicator traced first, also in the groups split from it. Whatever
    else the transport offers is offered too; its ``allreduce`` and virtual computing are recorded, what
    ranks write into memory they share is not.
    """

    def __init__(
        self,
        comm: Comm,
        clock: Callable[[], float] | None = None,
        *,
        record: Recorder | None = None,
        members: list[int] | None = None,
    ):
        self.comm, self.rank, self.size = comm, comm.rank, comm.size
        own_clock: Callable[[], float] = getattr(comm, "time", time.perf_counter)
        self.record = record or Recorder(comm.rank, clock or own_clock)
        self.ranks = members or list(range(comm.size))

    @contextmanager
    def computing(self, name: str) -> Iterator[None]:
        """``with comm.computing("forward"):`` records a span of that name."""
        if is_communication(name):
            raise ValueError(f"{name!r} is the name of a communication; name what is computed")
        outer, self.record.computing = self.record.computing, name
        try:
            with self.record.span(name):
                yield
        finally:
            self.record.computing = outer

    def send(self, x: Array, to: int, tag: int = 0) -> None:
        with self.record.span("send", self.peer(to), tag) as i:
            self.comm.send(x, to, tag)
            self.record.message(i, x.nbytes)

    def start_send(self, x: Array, to: int, tag: int = 0) -> Callable[[], None]:
        i, finish = self.start("start_send", self.peer(to), tag, lambda: self.comm.start_send(x, to, tag))
        self.record.message(i, x.nbytes)
        return finish

    def recv(self, source: int, tag: int = 0, like: Array | None = None) -> Array:
        with self.record.span("recv", self.peer(source), tag) as i:
            x = self.comm.recv(source, tag, like)
            self.record.message(i, x.nbytes)
        return x

    def start_recv(self, source: int, tag: int = 0, like: Array | None = None) -> Callable[[], Array]:
        peer = self.peer(source)
        return self.start("start_recv", peer, tag, lambda: self.comm.start_recv(source, tag, like))[1]

    def recv_any(self, tag: int = 0) -> tuple[int, Array]:
        with self.record.span("recv_any", None, tag) as i:
            source, x = self.comm.recv_any(tag)
            self.record.spans[i] = self.record.spans[i]._replace(peer=self.peer(source))
            self.record.message(i, x.nbytes)
        return source, x

    def split(self, color: int, key: int | None = None) -> Traced:
        with self.record.span("split"):
            comm = self.comm.split(color, key)
            members = [self.ranks[place] for place in places(comm, self.comm)]
        return Traced(comm, record=self.record, members=members)

    def background(self) -> TracedBackground:
        return TracedBackground(self, self.comm.background())

    def close(self) -> None:
        self.comm.close()

    def __getattr__(self, name: str) -> Any:
        own = getattr(self.__dict__["comm"], name)
        if name == "allreduce":
            return lambda x: self.collective(name, own, x)
        if name == "start_allreduce":
            return lambda x: self.start(name, None, None, lambda: own(x))[1]
        if name in ("compute", "reduced") and self.record.computing is None:  # a virtual clock's
            return lambda *given: self.timed(name, own, *given)
        return own

    # What the above is made of

    def peer(self, rank: int) -> int:
        check_peer(self, rank)
        return self.ranks[rank]

    def start(
        self, what: str, peer: int | None, tag: int | None, start: Callable[[], Any]
    ) -> tuple[int, Any]:
        """Start a communication; its span, and the function that finishes it and the span."""
        i = self.record.begin(what, peer, tag)
        with self.record.span("post", peer, tag):
            finish = start()

        def finish_span() -> Any:
            first = math.isnan(self.record.spans[i].stop)
            with self.record.span("wait", peer, tag):
                x = finish()
            if first:
                if x is not None:
                    self.record.message(i, x.nbytes)
                self.record.end(i)
            return x

        return i, finish_span

    def collective(self, name: str, own: Callable[[Array], Array], x: Array) -> Array:
        with self.record.span(name) as i:
            total = own(x)
            self.record.message(i, x.nbytes)
        return total

    def timed(self, name: str, own: Callable[..., Any], *given: Any) -> Any:
        with self.record.span(name):
            return own(*given)


class TracedBackground:
    """``background`` with a diary: a job's span is what it ran, its messages are counted when it is finished.

    What a job did inside has a diary of its own, of which only the ledger is kept: it took none of the
    rank's time.
    """

    def __init__(self, traced: Traced, background: Background):
        self.traced, self.background = traced, background

    def start(
        self, job: Callable[[Any], Result], what: str = "communication", nbytes: int = 0
    ) -> Callable[[], Result]:
        record, ranks = self.traced.record, self.traced.ranks
        i = record.begin(f"start_{what}")
        diary = Recorder(record.rank, record.clock)

        def traced_job(comm: Any) -> Result:
            diary.clock = getattr(comm, "time", record.clock)  # on a virtual clock the background's own
            record.spans[i] = record.spans[i]._replace(start=diary.clock())
            try:
                return job(Traced(comm, record=diary, members=ranks))
            finally:
                sent = diary.ledger.sent().bytes
                record.spans[i] = record.spans[i]._replace(stop=diary.clock(), bytes=sent)

        with record.span("post"):
            finish = self.background.start(traced_job, what, nbytes)

        def finish_wait() -> Result:
            with record.span("wait"):
                result = finish()
            for (operation, peer), count in diary.ledger.counts.items():
                record.ledger.add(operation, peer, count.bytes, count.messages)
            diary.ledger.counts.clear()
            return result

        return finish_wait

    def close(self) -> None:
        self.background.close()


def places(group: Comm, comm: Comm) -> list[int]:
    """The ranks of ``group`` as ranks of ``comm``, from which it was split."""
    if (members := getattr(group, "members", None)) is not None:
        return [comm.members.index(member) for member in members]  # pyright: ignore
    others = [r for r in range(group.size) if r != group.rank]
    finishes = [group.start_send(np.array(comm.rank), to, TAG) for to in others]
    found = {group.rank: comm.rank} | {source: int(group.recv(source, TAG)) for source in others}
    for finish in finishes:
        finish()
    return [found[r] for r in range(group.size)]
