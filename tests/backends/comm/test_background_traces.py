"""Laws of backends/comm/trace.py, timeline.py and background.py: a trace shows what ran in the background,
and how much of it computing hid.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from minigrad_course.machines.virtual_cluster import VirtualCluster

from backends.comm import run_ranks, trace
from backends.comm.collectives import ring_allreduce
from backends.comm.collectives.link import Link
from backends.comm.timeline import gantt
from backends.comm.trace import Ledger, Span, Trace, Traced, gather_trace
from tests.backends.comm.chrome_laws import obeys
from tests.backends.comm.communication_time import communicating, hidden
from tests.backends.comm.conformance import shift
from tests.bugs.mutant import mutant

A, B = 2.0**-10, 2.0**10  # a latency and a bandwidth whose sums and quotients are exact in binary


def cost(nbytes):
    return A + nbytes / B


def overlapped(seconds, n=128, ranks=2, module=trace):
    """The trace of a job, of ``n`` numbers round a ring, behind ``seconds`` of computing."""

    def program(comm):
        traced = module.Traced(comm)
        background = traced.background()
        finish = background.start(lambda comm: shift(comm, np.zeros(n)), "shift", 8 * n)
        with traced.computing("forward"):
            comm.compute(seconds)
        finish()
        return gather_trace(comm, traced)

    result = VirtualCluster(ranks, Link(A, B)).run(program)[0]
    assert result is not None
    return result


def exposes_what_computing_does_not_hide(seconds, n, module=trace):
    message = cost(8 * n)
    result = overlapped(seconds, n, module=module)
    for rank in range(2):
        assert result.exposed(rank) == max(message - seconds, 0)
        assert communicating(result, rank) == message
        assert hidden(result, rank) == min(message, seconds)
        (job,) = (s for s in result.spans if s.rank == rank and s.what == "start_shift")
        assert job == Span(rank, "start_shift", None, 8 * n, None, 0.0, message)
        assert result.ledgers[rank].sent(1 - rank) == result.ledgers[rank].received(1 - rank) == (1, 8 * n)


@given(quarters=st.integers(0, 8), n=st.integers(0, 300))
def test_what_computing_does_not_hide_is_exposed(quarters, n):
    exposes_what_computing_does_not_hide(quarters / 4, n)


def test_jobs_are_drawn_below_what_the_rank_does_meanwhile():
    assert gantt(overlapped(0.5, n=127), width=16) == (
        "   rank 0 |FFFFFFFFWWWWWWWW|\n"
        "under way |SSSSSSSSSSSSSSSS|\n"
        "   rank 1 |FFFFFFFFWWWWWWWW|\n"
        "under way |SSSSSSSSSSSSSSSS|\n"
        "           0         993 ms\n"
        "F forward  W wait  S shift  . idle"
    )


def starts_each_job_when_the_one_before_is_done(module=trace):
    def program(comm):
        traced = module.Traced(comm)
        background = traced.background()
        finishes = [background.start(lambda comm: shift(comm, np.zeros(128)), "shift") for _ in range(3)]
        for finish in finishes:
            finish()
        return gather_trace(comm, traced)

    result = VirtualCluster(2, Link(A, B)).run(program)[0]
    assert result is not None
    times = [(s.start, s.stop) for s in result.spans if s.rank == 1 and s.what == "start_shift"]
    assert times == [(i * cost(1024), (i + 1) * cost(1024)) for i in range(3)]
    assert [s.start for s in result.spans if s.rank == 1] == sorted(
        s.start for s in result.spans if s.rank == 1
    )


def test_a_job_that_waits_for_the_one_before_is_not_under_way_yet():
    starts_each_job_when_the_one_before_is_done()


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_the_bytes_of_jobs_are_in_the_ledgers_and_in_the_json(ranks):
    def program(comm):
        traced = Traced(comm)
        background = traced.background()
        finishes = [
            background.start(lambda comm, n=n: ring_allreduce(comm.split(0), np.ones(n)), "allreduce", 8 * n)
            for n in (10, 100)
        ]
        ring_allreduce(traced, np.ones(7))
        for finish in finishes:
            finish()
        with pytest.raises(ZeroDivisionError):
            background.start(lambda _: 1 // 0, "division")()
        return gather_trace(comm, traced)

    trace = run_ranks(ranks, program)[0]
    assert trace is not None
    assert trace.sent() == (3 * 2 * ranks * (ranks - 1), 2 * (ranks - 1) * 8 * 117)
    for a in range(ranks):
        for b in range(ranks):
            assert trace.ledgers[a].sent(to=b) == trace.ledgers[b].received(source=a)
    obeys(trace)


intervals = st.lists(
    st.tuples(
        st.sampled_from(["wait", "recv", "start_recv", "start_sum", "forward"]),
        st.integers(0, 30),
        st.integers(0, 10),
    ),
    max_size=8,
)


@given(spans=intervals)
def test_communicating_and_hidden_are_unions(spans):
    """Second by second: under way, and blocked."""
    trace = Trace(tuple(Span(0, what, None, 0, None, a, a + n) for what, a, n in spans), (Ledger(),))

    def seconds(names):
        return {t for what, a, n in spans if what in names for t in range(a, a + n)}

    blocked = seconds(("wait", "recv"))
    under_way = blocked | seconds(("start_recv", "start_sum"))
    assert communicating(trace, 0) == len(under_way)
    assert hidden(trace, 0) == len(under_way - blocked)
    assert communicating(trace, 1) == hidden(trace, 1) == 0


# Seeded bugs

BUGS = {
    "a job lasts from when it was posted": (
        "record.spans[i] = record.spans[i]._replace(start=inner.clock())",
        "inner.clock()",
    ),
    "a job ends when the rank waits for it": (
        "_replace(stop=inner.clock(), bytes=sent)",
        "_replace(bytes=sent)",
    ),
    "the wait for a job is not timed": (
        '            with record.span("wait"):\n                result = finish()',
        "            result = finish()",
    ),
    "what jobs sent is forgotten": (
        "record.ledger.add(operation, peer, count.bytes, count.messages)",
        "pass",
    ),
    "what jobs do is the rank's": ("inner = Recorder(record.rank, record.clock)", "inner = record"),
}


@pytest.mark.parametrize("bug", BUGS)
def test_the_laws_of_traced_jobs_catch(bug):
    module = mutant("backends.comm.trace", BUGS[bug])
    with pytest.raises((AssertionError, RuntimeError)):
        exposes_what_computing_does_not_hide(0.25, 128, module)
        starts_each_job_when_the_one_before_is_done(module)
