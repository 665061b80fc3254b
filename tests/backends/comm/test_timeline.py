"""Laws of backends/comm/timeline.py and chrome.py: the drawings of a trace are text to the letter, JSON by
the format's rules, and a picture that is one.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.comm.chrome import chrome_trace
from backends.comm.timeline import draw, gantt, innermost, summary
from backends.comm.trace import Ledger, Span, Trace


def span(rank, what, start, stop, peer=None, nbytes=0):
    return Span(rank, what, peer, nbytes, None if peer is None else 0, start, stop)


def by_hand():
    """Two ranks, 16 s: rank 1 starts a receive, computes, and waits for the rest of it."""
    ledgers = Ledger(), Ledger()
    ledgers[0].add("send", 1, 3_000_000)
    ledgers[1].add("start_recv", 0, 3_000_000)
    return Trace(
        (
            span(0, "forward", 0.0, 4.0),
            span(0, "send", 4.0, 6.0, 1, 3_000_000),
            span(0, "update", 14.0, 16.0),
            span(1, "start_recv", 0.0, 12.0, 0, 3_000_000),
            span(1, "forward", 0.0, 8.0),
            span(1, "fuss", 6.0, 7.0),
            span(1, "wait", 8.0, 12.0, 0),
        ),
        ledgers,
    )


def test_a_gantt_to_the_letter():
    assert gantt(by_hand(), width=16) == (
        "   rank 0 |FFFFSS........UU|\n"
        "   rank 1 |FFFFFFAFWWWW....|\n"
        "under way |RRRRRRRRRRRR....|\n"
        "           0           16 s\n"
        "F forward  U update  S send  R recv  W wait  A fuss  . idle"
    )


def test_a_column_shows_what_took_most_of_it():
    assert gantt(by_hand(), width=2).splitlines()[:3] == [
        "   rank 0 |F.|",
        "   rank 1 |FW|",
        "under way |RR|",
    ]


def test_a_gantt_of_a_part():
    assert gantt(by_hand(), width=8, start=4.0, stop=8.0).splitlines()[0] == "   rank 0 |SSSS....|"
    with pytest.raises(ValueError, match="nothing to draw between 3 s and 3 s"):
        gantt(by_hand(), start=3.0, stop=3.0)
    with pytest.raises(ValueError, match="nothing to draw"):
        gantt(Trace((), (Ledger(),)))


def test_the_summary():
    assert summary(by_hand()) == "2 ranks: 1 messages, 3 MB; 19% of the time in communication"


moments = st.integers(0, 20).map(float)
spans = st.lists(
    st.tuples(moments, moments, st.sampled_from(["forward", "recv"])).map(
        lambda t: span(0, t[2], min(t[:2]), max(t[:2]))
    ),
    max_size=8,
)


@given(spans)
def test_the_pieces_of_a_row_are_disjoint_and_cover_what_the_spans_cover(trace):
    pieces = innermost(trace)
    assert all(a.stop <= b.start for a, b in zip(pieces, pieces[1:], strict=False))
    for t in np.arange(0.5, 20):
        covered = any(s.start < t < s.stop for s in trace)
        assert covered == any(p.start < t < p.stop for p in pieces)


def test_a_picture_is_written_whole(tmp_path):
    draw(by_hand(), tmp_path / "t.png")
    assert (tmp_path / "t.png").read_bytes().startswith(b"\x89PNG")
    assert [p.name for p in tmp_path.iterdir()] == ["t.png"]


def test_json_to_the_letter():
    events = chrome_trace(by_hand())["traceEvents"]
    assert [e for e in events if e["ph"] in "be"] == [
        {
            "name": "rank 1 start_recv",
            "cat": "received",
            "pid": 0,
            "tid": 1,
            "id": "0x3",
            "ph": "b",
            "ts": 0,
            "args": {"peer": 0, "bytes": 3_000_000, "tag": 0},
        },
        {
            "name": "rank 1 start_recv",
            "cat": "received",
            "pid": 0,
            "tid": 1,
            "id": "0x3",
            "ph": "e",
            "ts": 12_000_000,
            "args": {},
        },
    ]
    assert [(e["name"], e["tid"], e["ts"], e["dur"]) for e in events if e["ph"] == "X"] == [
        ("forward", 1, 0, 8_000_000),
        ("forward", 0, 0, 4_000_000),
        ("send to 1", 0, 4_000_000, 2_000_000),
        ("fuss", 1, 6_000_000, 1_000_000),
        ("wait rank 0", 1, 8_000_000, 4_000_000),
        ("update", 0, 14_000_000, 2_000_000),
    ]
