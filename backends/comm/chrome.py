"""A trace as JSON in the Trace Event Format, which https://ui.perfetto.dev and chrome://tracing open."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .spans import COMMUNICATION, RECEIVED, SENT, Ledger, Span, Trace, is_communication, is_started

MICROSECONDS = 1e6


def chrome_trace(trace: Trace, about: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The trace for ``json.dump``: a thread for each rank, ledgers and ``about`` as ``otherData``.

    A rank's spans nest, and become complete events ("X"). A started communication may overlap others, which
    viewers would drop from a thread; it becomes a pair of asynchronous events ("b", "e") with an id. Times
    are whole microseconds since the trace began, rounded down, so that nested spans stay nested.
    The bytes of the events of category "sent" add up to those of the ledgers.
    """
    events: list[dict[str, Any]] = [metadata("process_name", 0, {"name": "minigrad"})]
    for rank in range(trace.size):
        events.append(metadata("thread_name", rank, {"name": f"rank {rank}"}))
        events.append(metadata("thread_sort_index", rank, {"sort_index": rank}))
    # The outer one of two that start together comes first, as the viewers want it.
    for i, span in sorted(enumerate(trace.spans), key=lambda item: (item[1].start, -item[1].stop)):
        events += events_of(span, i, trace.start)
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": {**totals(trace), **(about or {})}}


def events_of(span: Span, i: int, origin: float) -> list[dict[str, Any]]:
    start, stop = (int((t - origin) * MICROSECONDS) for t in (span.start, span.stop))
    link = "to" if span.what in SENT else "from" if span.what not in ("post", "wait") else "rank"
    name = span.what if span.peer is None else f"{span.what} {link} {span.peer}"
    common = {"name": name, "cat": category(span.what), "pid": 0, "tid": span.rank}
    args = {"peer": span.peer, "bytes": span.bytes, "tag": span.tag} if is_communication(span.what) else {}
    args = {key: value for key, value in args.items() if value is not None}
    if not is_started(span.what):
        return [{**common, "ph": "X", "ts": start, "dur": stop - start, "args": args}]
    common |= {"id": f"0x{i:x}", "name": f"rank {span.rank} {span.what}"}  # a track for each name
    return [{**common, "ph": "b", "ts": start, "args": args}, {**common, "ph": "e", "ts": stop, "args": {}}]


def category(what: str) -> str:
    if what in SENT or (is_started(what) and what not in RECEIVED):  # also a job of the background
        return "sent"
    if what in COMMUNICATION:
        return "blocked" if what in ("post", "wait", "split") else "received"
    return "computed"


def metadata(name: str, rank: int, args: dict[str, Any]) -> dict[str, Any]:
    return {"ph": "M", "name": name, "pid": 0, "tid": rank, "ts": 0, "args": args}


def totals(trace: Trace) -> dict[str, Any]:
    """The ledgers by operation and pair of ranks, and the seconds that each rank was blocked."""
    messages, nbytes = trace.sent()
    rows = [
        {"rank": rank, "operation": what, "peer": peer, "messages": count.messages, "bytes": count.bytes}
        for rank, ledger in enumerate(trace.ledgers)
        for (what, peer), count in sorted(ledger.counts.items(), key=str)
    ]
    return {
        "messages_sent": messages,
        "bytes_sent": nbytes,
        "exposed_seconds": [trace.exposed(rank) for rank in range(trace.size)],
        "clock_error_seconds": trace.clock_error,
        "ledger": rows,
    }


# And back


def read_trace(file: Path) -> tuple[Trace, dict[str, Any]]:
    """The trace in a file that holds a ``chrome_trace``, with times to the microsecond; its ``otherData``.

    Raises ValueError, naming the file, where it holds anything else, OSError where it cannot be read.
    """
    if not file.exists() or file.is_dir():  # a pipe is a file to read, too
        raise OSError(f"there is no trace file {file}; minigrad train --trace {file} writes one")
    try:
        content = json.loads(file.read_bytes())
        return trace_of(content), content["otherData"]
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{file} is no trace that minigrad wrote ({type(error).__name__}: {error}); "
            "write one anew, with minigrad train --trace"
        ) from error


def trace_of(content: dict[str, Any]) -> Trace:
    """The trace from which ``chrome_trace`` made ``content``."""
    rest = content["otherData"]
    ledgers = [Ledger() for _ in rest["exposed_seconds"]]
    for row in rest["ledger"]:
        ledgers[row["rank"]].add(row["operation"], row["peer"], row["bytes"], row["messages"])
    ends = {event["id"]: event["ts"] for event in content["traceEvents"] if event["ph"] == "e"}
    spans = [span_of(event, ends) for event in content["traceEvents"] if event["ph"] in ("X", "b")]
    if any(not 0 <= span.rank < len(ledgers) for span in spans):
        raise ValueError(f"a span is of a rank that is not among the {len(ledgers)}")
    return Trace(tuple(spans), tuple(ledgers), rest["clock_error_seconds"])


def span_of(event: dict[str, Any], ends: Mapping[str, int]) -> Span:
    """The span of an event that begins it."""
    rank, what, args, start = event["tid"], event["name"], event["args"], event["ts"]
    if event["ph"] == "b":
        stop, what = ends[event["id"]], what.removeprefix(f"rank {rank} ")
    else:
        stop = start + event["dur"]
        what = what.rsplit(" ", 2)[0] if "peer" in args else what  # without "to 3"
    times = start / MICROSECONDS, stop / MICROSECONDS
    numbers = [args.get(key) for key in ("peer", "bytes", "tag")]
    if not isinstance(what, str) or any(not isinstance(n, int | None) for n in (rank, *numbers)):
        raise ValueError(f"a span's name is text, its rank, peer, bytes and tag whole numbers, got {event}")
    return Span(rank, what, args.get("peer"), args.get("bytes") or 0, args.get("tag"), *times)
