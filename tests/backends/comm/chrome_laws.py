"""Laws of backends/comm/chrome.py: the JSON of a trace keeps the rules of the format."""

import json
import re
from collections import defaultdict

import numpy as np

from backends.comm import chrome
from backends.comm.collectives import ring_allreduce
from backends.comm.trace import Traced, gather_trace


def keeps_the_rules(content):
    """Assert the Trace Event Format's rules, and those of Perfetto's importer beyond it.

    A complete event that overlaps another of its thread without lying in it is dropped there; an
    asynchronous pair must agree in category, id, process and name.
    """
    content = json.loads(json.dumps(content, allow_nan=False))
    assert isinstance(content["traceEvents"], list) and content["displayTimeUnit"] in ("ms", "ns")
    named, threads, begun = set(), defaultdict(list), {}
    for event in sorted(content["traceEvents"], key=lambda e: e["ts"]):
        assert isinstance(event["name"], str) and event["name"] and isinstance(event["args"], dict)
        assert all(type(event[key]) is int and event[key] >= 0 for key in ("pid", "tid", "ts"))
        if event["ph"] == "M":
            assert event["name"] in ("process_name", "thread_name", "thread_sort_index") and event["args"]
            named.add((event["name"], event["tid"]))
            continue
        assert isinstance(event["cat"], str) and ("thread_name", event["tid"]) in named
        if event["ph"] == "X":
            assert type(event["dur"]) is int and event["dur"] >= 0 and "id" not in event
            threads[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
        else:
            assert event["ph"] in ("b", "e") and re.fullmatch("0x[0-9a-f]+", event["id"])
            key = tuple(event[k] for k in ("pid", "cat", "id", "name"))
            if event["ph"] == "b":
                assert key not in begun
                begun[key] = event["ts"]
            else:
                assert event["ts"] >= begun.pop(key)
    assert not begun and ("process_name", 0) in named
    for events in threads.values():
        open_until = []
        for start, stop in sorted(events, key=lambda e: (e[0], -e[1])):
            while open_until and open_until[-1] <= start:
                open_until.pop()
            assert not open_until or stop <= open_until[-1], "two events overlap and neither holds the other"
            open_until.append(stop)


def bytes_sent(content):
    return sum(
        e["args"]["bytes"] for e in content["traceEvents"] if e.get("cat") == "sent" and e["ph"] != "e"
    )


def busy(comm):
    """Started communications that overlap one another and computing."""
    traced = Traced(comm)
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    receives = [traced.start_recv(left, tag) for tag in range(3)]
    sends = []
    with traced.computing("forward"):
        for tag in range(3):
            sends.append(traced.start_send(np.zeros(10 + tag), right, tag))
            with traced.computing("inner"):
                np.zeros(1000).sum()
    for finish in (*reversed(receives), *sends):
        finish()
    ring_allreduce(traced, np.zeros(100))
    traced.send(np.zeros(4), comm.rank, tag=9)
    traced.recv_any(tag=9)
    return gather_trace(comm, traced)


def obeys(trace, module=chrome):
    """The law: the rules are kept, and the bytes of the events are the ledgers'."""
    content = module.chrome_trace(trace)
    keeps_the_rules(content)
    assert bytes_sent(content) == trace.sent().bytes == content["otherData"]["bytes_sent"]
    rows = content["otherData"]["ledger"]
    assert sum(r["bytes"] for r in rows if "send" in r["operation"]) == trace.sent().bytes
