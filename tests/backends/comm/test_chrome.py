"""Laws of backends/comm/chrome.py: the JSON of a trace keeps the rules of the format, and
its bytes are the ledgers'.
"""

import json
import sys
from collections import Counter

import pytest

from backends.comm import run_ranks
from backends.entry import main
from backends.process import launcher
from tests.backends.comm.chrome_laws import busy, bytes_sent, keeps_the_rules, obeys
from tests.bugs.mutant import mutant


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
