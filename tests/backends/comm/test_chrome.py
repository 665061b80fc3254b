"""The JSON of a trace keeps the rules of the format, and its bytes are the ledgers'."""

import json
import re
import sys
from collections import Counter, defaultdict

import numpy as np
import pytest

from backends.comm import chrome, run_ranks
from backends.comm.collectives import ring_allreduce
from backends.comm.trace import Traced, gather_trace
from backends.entry import main
from backends.process import launcher
from tests.bugs.mutant import mutant


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


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_json_keeps_the_rules_and_the_ledgers_bytes(ranks):
    obeys(run_ranks(ranks, busy)[0])


BUGS = {
    "started communications are drawn on the rank's thread": ("if not is_started(span.what):", "if True:"),
    "times are seconds": ("int((t - origin) * MICROSECONDS)", "(t - origin)"),
    "the end of a pair has another name": ('{**common, "ph": "e"', '{**common, "name": "end", "ph": "e"'),
    "all pairs have one id": ('f"0x{i:x}"', '"0x1"'),
    "both ends of a pair carry the bytes": (
        '"ts": stop, "args": {}',
        '"ts": stop, "cat": "sent", "args": args',
    ),
    "no thread is named": ('metadata("thread_name"', 'metadata("thread_sort_index"'),
    "what is received counts as sent": (
        "if what in SENT or (is_started(what) and what not in RECEIVED):",
        "if what:",
    ),
}


@pytest.mark.parametrize("bug", BUGS)
def test_the_law_of_the_json_catches(bug):
    trace = run_ranks(2, busy)[0]
    with pytest.raises((AssertionError, KeyError)):
        obeys(trace, mutant("backends.comm.chrome", BUGS[bug]))


# The command


def test_train_writes_a_trace_whose_bytes_are_the_ledgers(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in (*launcher.RANK_VARIABLES, *launcher.SIZE_VARIABLES):
        monkeypatch.delenv(name, raising=False)
    command = "minigrad train --data 2 --transport threads --net mlp --epochs 1 --batch 1000 --trace run.json"
    monkeypatch.setattr(sys, "argv", command.split())
    with pytest.raises(SystemExit) as end:
        main()
    out = capsys.readouterr().out
    assert end.value.code == 0 and "trace: run.json" in out and "rank 1 |" in out
    content = json.loads((tmp_path / "run.json").read_text(encoding="utf-8"))
    keeps_the_rules(content)
    assert bytes_sent(content) == content["otherData"]["bytes_sent"] > 0
    counts = Counter((e["tid"], e["name"]) for e in content["traceEvents"] if e["ph"] == "X")
    steps = {(rank, name): 5 for rank in (0, 1) for name in ("forward", "backward", "update")}
    assert steps.items() <= counts.items()
    (folder,) = (tmp_path / "runs").iterdir()
    assert (folder / "timeline.png").read_bytes().startswith(b"\x89PNG")
    parameters, report = 118_282, 2 + 2 + 6  # beside the gradients of each step
    agreement = bytes_sent(content) - 4 * parameters - 5 * 2 * 4 * (parameters + report)
    assert 0 < agreement < 1000  # what the ranks tell one another of the model once


def test_a_trace_that_cannot_be_written_is_said_before_training(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["minigrad", "train", "--trace", "no/where.json"])
    with pytest.raises(SystemExit):
        main()
    assert (
        "cannot write no/where.json" in (err := capsys.readouterr().err)
        and "name another with --trace" in err
    )
    assert not (tmp_path / "runs").exists()
