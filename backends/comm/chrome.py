"""A trace as JSON in the Trace Event Format, which https://ui.perfetto.dev and chrome://tracing open."""

from __future__ import annotations

from typing import Any

from .spans import COMMUNICATION, RECEIVED, SENT, Span, Trace, is_communication, is_started

MICROSECONDS = 1e6


def chrome_trace(trace: Trace) -> dict[str, Any]:
    """The trace as what ``json.dump`` takes: a thread for each rank, and the ledgers under ``otherData``.

    What a rank does nests, and makes complete events ("X"). A started communication overlaps anything, which
    viewers would drop from a thread; so it makes a pair of asynchronous events ("b", "e") with an id.
    Times are whole microseconds since the trace began, rounded down: what nests stays nested.
    The bytes of the events of category "sent" add up to those of the ledgers.
    """
    events: list[dict[str, Any]] = [metadata("process_name", 0, {"name": "minigrad"})]
    for rank in range(trace.size):
        events.append(metadata("thread_name", rank, {"name": f"rank {rank}"}))
        events.append(metadata("thread_sort_index", rank, {"sort_index": rank}))
    # Of two that start together the outer one comes first, as the viewers want it.
    order = sorted(enumerate(trace.spans), key=lambda item: (item[1].start, -item[1].stop))
    for i, span in order:
        events += events_of(span, i, trace.start)
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": totals(trace)}


def events_of(span: Span, i: int, origin: float) -> list[dict[str, Any]]:
    start, stop = (int((t - origin) * MICROSECONDS) for t in (span.start, span.stop))
    name = span.what if span.peer is None else f"{span.what} {preposition(span.what)} {span.peer}"
    common = {"name": name, "cat": category(span.what), "pid": 0, "tid": span.rank}
    args = {
        k: v for k, v in {"peer": span.peer, "bytes": span.bytes, "tag": span.tag}.items() if v is not None
    }
    args = args if is_communication(span.what) else {}
    if not is_started(span.what):
        return [{**common, "ph": "X", "ts": start, "dur": stop - start, "args": args}]
    common |= {"id": f"0x{i:x}", "name": f"rank {span.rank} {span.what}"}  # a track for each name
    return [{**common, "ph": "b", "ts": start, "args": args}, {**common, "ph": "e", "ts": stop, "args": {}}]


def preposition(what: str) -> str:
    return "to" if what in SENT else "from" if what not in ("post", "wait") else "rank"


def category(what: str) -> str:
    if what in SENT:
        return "sent"
    if is_started(what) and what not in RECEIVED:
        return "sent"  # a job of the background
    if what in COMMUNICATION:
        return "blocked" if what in ("post", "wait", "split") else "received"
    return "computed"


def metadata(name: str, rank: int, args: dict[str, Any]) -> dict[str, Any]:
    return {"ph": "M", "name": name, "pid": 0, "tid": rank, "ts": 0, "args": args}


def totals(trace: Trace) -> dict[str, Any]:
    """What the ledgers hold, by operation and by pair of ranks, and how long each rank was blocked."""
    messages, nbytes = trace.sent()
    rows = [
        {"rank": rank, "operation": what, "peer": peer, "messages": count.messages, "bytes": count.bytes}
        for rank, ledger in enumerate(trace.ledgers)
        for (what, peer), count in sorted(ledger.counts.items(), key=str)
    ]
    exposed = [trace.exposed(rank) for rank in range(trace.size)]
    return {
        "messages_sent": messages,
        "bytes_sent": nbytes,
        "exposed_seconds": exposed,
        "clock_error_seconds": trace.clock_error,
        "ledger": rows,
    }
