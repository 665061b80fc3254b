"""All ranks' traces brought to rank 0, as arrays, and onto its clock."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from minigrad.device import Array

from .protocol import Comm
from .spans import Ledger, Span, Trace

if TYPE_CHECKING:
    from .trace import Traced

TAG = 32001  # of the messages about the trace itself
ROUNDS = 8


def gather_trace(comm: Comm, traced: Traced) -> Trace | None:
    """All ranks' traces, on rank 0; None elsewhere. ``comm`` is what ``traced`` wraps; every rank calls this.

    Rank 0 asks each other rank for its time, ``ROUNDS`` times. An answer was given between two readings
    of rank 0's clock: where all answers say so the clocks are taken as one (those of threads are, and
    of most machines' processes). Else the shortest exchange tells how far the other clock is ahead,
    to within half its length, and the times are shifted; the largest such error is ``clock_error``.
    """
    record, clock = traced.record, traced.record.clock
    spans, ledger = record.closed(), record.ledger
    if comm.rank != 0:
        for _ in range(ROUNDS):
            comm.recv(0, TAG)
            comm.send(np.array(clock()), 0, TAG)
        for array in packed(spans, ledger):
            comm.send(array, 0, TAG)
        return None
    ledgers, errors = [ledger], [0.0]
    for rank in range(1, comm.size):
        ahead, error = compare_clocks(comm, clock, rank)
        theirs, ledger = unpacked(rank, *(comm.recv(rank, TAG) for _ in range(3)))
        spans += [s._replace(start=s.start - ahead, stop=s.stop - ahead) for s in theirs]
        ledgers.append(ledger)
        errors.append(error)
    return Trace(tuple(spans), tuple(ledgers), max(errors))


def compare_clocks(comm: Comm, clock: Callable[[], float], rank: int) -> tuple[float, float]:
    """How far the clock of ``rank`` is ahead of this rank's, and the error of that."""
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


def packed(spans: list[Span], ledger: Ledger) -> list[Array]:
    """A rank's trace as arrays: the names, joined; a row for each span; a row for each count. None is NaN."""
    names = sorted({s.what for s in spans} | {what for what, _ in ledger.counts})
    number = {name: i for i, name in enumerate(names)}
    rows = [[number[s.what], s.peer, s.bytes, s.tag, s.start, s.stop] for s in spans]
    counts = [[number[what], peer, *count] for (what, peer), count in ledger.counts.items()]
    return [
        np.frombuffer("\n".join(names).encode(), "uint8"),
        np.array(rows, "float64").reshape(-1, 6),  # exact for bytes up to 2**53
        np.array(counts, "float64").reshape(-1, 4),
    ]


def unpacked(rank: int, joined: Array, rows: Array, counts: Array) -> tuple[list[Span], Ledger]:
    """What ``packed`` packed on ``rank``."""
    names = joined.tobytes().decode().split("\n")
    spans = [
        Span(rank, names[int(what)], whole(peer), int(nbytes), whole(tag), start, stop)
        for what, peer, nbytes, tag, start, stop in rows.tolist()
    ]
    ledger = Ledger()
    for what, peer, messages, nbytes in counts.tolist():
        ledger.add(names[int(what)], whole(peer), int(nbytes), int(messages))
    return spans, ledger


def whole(x: float) -> int | None:
    return None if math.isnan(x) else int(x)
