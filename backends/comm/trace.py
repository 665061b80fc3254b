"""A communicator that records what each rank did, when, and how many bytes it sent to which rank.

``Traced(comm)`` does not change a program's results. It records a ``Span`` for each call and a ``Ledger`` of
messages and bytes. ``gather_trace`` collects the records of all ranks on rank 0; ``timeline`` draws them.
Lecture section: synchronous data parallelism. Lesson: 06_data_parallel.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import starmap
from typing import Any

import numpy as np

from minigrad.device import Array

from .background import Background
from .collectives.send_recv import check_peer
from .communicator import Communicator, Result, Wrapper
from .gpu import synchronize
from .recoverable import Recoverable
from .spans import Count, Ledger, Span, Trace, is_communication

__all__ = ["Count", "Ledger", "Recorder", "Span", "Trace", "Traced", "gather_trace"]

TAG = 32001  # of the messages that collect a trace
ROUNDS = 8  # of messages that compare two clocks


class Recorder:
    """One rank's record; a communicator and the groups split from it write into the same one."""

    def __init__(self, rank: int, clock: Callable[[], float]):
        self.rank, self.clock = rank, clock
        self.spans: list[Span] = []
        self.ledger = Ledger()
        self.computing: str | None = None  # the innermost name passed to ``Traced.computing``

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
        """The spans so far, in the order they started; a span that is still open ends now."""
        now = self.clock()
        spans = [s._replace(stop=now) if math.isnan(s.stop) else s for s in self.spans]
        return sorted(spans, key=lambda s: s.start)  # a background job starts after it was posted


class Traced(Wrapper):
    """``comm`` with a record of all calls; every rank of ``comm`` must be traced, or none.

    Times are those of ``comm.time()``. Peers are recorded as ranks of the communicator traced first, also in
    the groups split from it. What ranks write into shared memory is not recorded.
    """

    def __init__(self, comm: Communicator, *, record: Recorder | None = None, ranks: list[int] | None = None):
        super().__init__(comm)
        self.record = record or Recorder(comm.rank, comm.time)
        self.ranks = ranks or list(range(comm.size))

    @contextmanager
    def computing(self, name: str) -> Iterator[None]:
        """``with comm.computing("forward"):`` records a span of that name.

        Raises ValueError if it is the name of a communication.
        """
        if is_communication(name):
            raise ValueError(f"{name!r} is the name of a communication; name what is computed")
        outer, self.record.computing = self.record.computing, name
        try:
            synchronize()  # the span is the computation's, and not of what was asked of a GPU before
            with self.record.span(name):
                yield
                synchronize()
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

    def recv(self, source: int, tag: int = 0, expect: Array | None = None) -> Array:
        with self.record.span("recv", self.peer(source), tag) as i:
            x = self.comm.recv(source, tag, expect)
            self.record.message(i, x.nbytes)
        return x

    def start_recv(self, source: int, tag: int = 0, expect: Array | None = None) -> Callable[[], Array]:
        peer = self.peer(source)
        return self.start("start_recv", peer, tag, lambda: self.comm.start_recv(source, tag, expect))[1]

    def recv_any(self, tag: int = 0) -> tuple[int, Array]:
        with self.record.span("recv_any", None, tag) as i:
            source, x = self.comm.recv_any(tag)
            self.record.spans[i] = self.record.spans[i]._replace(peer=self.peer(source))
            self.record.message(i, x.nbytes)
        return source, x

    def split(self, color: int, key: int | None = None) -> Traced:
        with self.record.span("split"):
            comm = self.comm.split(color, key)
            ranks = [self.ranks[self.members.index(member)] for member in comm.members]
        return Traced(comm, record=self.record, ranks=ranks)

    def recoverable(self) -> Recoverable:
        """Raises RuntimeError: a rank that dies takes its record with it."""
        raise RuntimeError(
            "a rank that dies takes its part of the trace with it, so strategies that go on without it are "
            "not traced; leave --trace out, or choose another --strategy"
        )

    def background(self) -> TracedBackground:
        return TracedBackground(self, self.comm.background())

    def allreduce(self, x: Array) -> Array:
        if not self.has_own_allreduce:
            return super().allreduce(x)  # its messages are recorded
        with self.record.span("allreduce") as i:
            total = self.comm.allreduce(x)
            self.record.message(i, x.nbytes)
        return total

    def start_allreduce(self, x: Array) -> Callable[[], Array]:
        if not self.has_own_allreduce:
            return super().start_allreduce(x)
        return self.start("start_allreduce", None, None, lambda: self.comm.start_allreduce(x))[1]

    def collective(self, ours: Callable[..., Any], /, *arguments: Any, **named: Any) -> Any:
        if ours not in self.own_collectives:
            return super().collective(ours, *arguments, **named)
        with self.record.span(ours.__name__) as i:
            result = self.comm.collective(ours, *arguments, **named)
            self.record.message(i, handed_over(arguments))
        return result

    def compute(self, seconds: float) -> None:
        is_part = self.record.computing is not None  # of a span that has a name
        with nullcontext() if is_part else self.record.span("compute"):
            self.comm.compute(seconds)

    # Helpers of the above

    def peer(self, rank: int) -> int:
        check_peer(self, rank)
        return self.ranks[rank]

    def start(self, what: str, peer: int | None, tag: int | None, start: Callable) -> tuple[int, Any]:
        """Start a communication; returns its span's number, and a function that finishes it and its span."""
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


def handed_over(arguments: Sequence[Any]) -> int:
    """Bytes of a collective's first argument, if it has one: an array, one for each rank, or None."""
    x = arguments[0] if arguments else None
    return sum(array.nbytes for array in (x if isinstance(x, list | tuple) else [x]) if array is not None)


class TracedBackground(Background):
    """Records ``background``: a job's span lasts while it runs; finishing it counts its messages.

    The communication inside a job takes none of the rank's time, so only its ledger is recorded.
    """

    def __init__(self, traced: Traced, background: Background):
        self.traced, self.background = traced, background

    def start(
        self, job: Callable[[Any], Result], what: str = "communication", nbytes: int = 0
    ) -> Callable[[], Result]:
        record, ranks = self.traced.record, self.traced.ranks
        i = record.begin(f"start_{what}")
        inner = Recorder(record.rank, record.clock)

        def traced_job(comm: Communicator) -> Result:
            inner.clock = comm.time  # a virtual background has its own
            record.spans[i] = record.spans[i]._replace(start=inner.clock())
            try:
                return job(Traced(comm, record=inner, ranks=ranks))
            finally:
                sent = inner.ledger.sent().bytes
                record.spans[i] = record.spans[i]._replace(stop=inner.clock(), bytes=sent)

        with record.span("post"):
            finish = self.background.start(traced_job, what, nbytes)

        def finish_wait() -> Result:
            with record.span("wait"):
                result = finish()
            for (operation, peer), count in inner.ledger.counts.items():
                record.ledger.add(operation, peer, count.bytes, count.messages)
            inner.ledger.counts.clear()
            return result

        return finish_wait

    def close(self) -> None:
        self.background.close()


# All ranks' records on rank 0


def gather_trace(comm: Communicator, traced: Traced) -> Trace | None:
    """The traces of all ranks, on rank 0; None elsewhere. ``traced`` wraps ``comm``; every rank calls this.

    Rank 0 asks each other rank for its time, ``ROUNDS`` times. If every answer lies between rank 0's readings
    before and after it, the two clocks count as one, as for threads and processes of one machine. Otherwise
    the shortest exchange gives the offset to within half its length, and the times are shifted by it; the
    largest such error is ``clock_error``.
    """
    record, clock = traced.record, traced.record.clock
    spans, ledger = record.closed(), record.ledger
    if comm.rank != 0:
        for _ in range(ROUNDS):
            comm.recv(0, TAG)
            comm.send(np.array(clock()), 0, TAG)
        counts = [(*key, *count) for key, count in ledger.counts.items()]
        text = json.dumps([spans, counts], default=np.generic.item)
        comm.send(np.frombuffer(text.encode(), np.uint8), 0, TAG)
        return None
    ledgers, errors = [ledger], [0.0]
    for rank in range(1, comm.size):
        ahead, error = compare_clocks(comm, clock, rank)
        theirs, counts = json.loads(comm.recv(rank, TAG).tobytes())
        spans += [s._replace(start=s.start - ahead, stop=s.stop - ahead) for s in starmap(Span, theirs)]
        ledgers.append(Ledger({(what, peer): Count(*count) for what, peer, *count in counts}))
        errors.append(error)
    return Trace(tuple(spans), tuple(ledgers), max(errors))


def compare_clocks(comm: Communicator, clock: Callable[[], float], rank: int) -> tuple[float, float]:
    """Seconds by which the clock of ``rank`` is ahead of this rank's, and the error of that."""
    rounds = []
    for _ in range(ROUNDS):
        before = clock()
        comm.send(np.array(before), rank, TAG)
        theirs = float(comm.recv(rank, TAG))
        rounds.append((before, theirs, clock()))
    if all(before <= theirs <= after for before, theirs, after in rounds):
        return 0.0, 0.0
    error, ahead = min(
        ((after - before) / 2, theirs - (before + after) / 2) for before, theirs, after in rounds
    )
    return ahead, error
