"""Laws of backends/comm/trace.py and spans.py: what was hidden and what exposed, unfinished and failed
spans, and clocks that differ.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from minigrad_course.machines.virtual_cluster import VirtualCluster

from backends.comm import run_ranks, trace
from backends.comm.collectives import ring_allreduce
from backends.comm.collectives.link import Link
from backends.comm.communicator import Wrapper
from backends.comm.trace import Span, Traced, gather_trace
from tests.bugs.mutant import mutant

A, B = 2.0**-10, 2.0**10  # a latency and a bandwidth whose sums and quotients are exact in binary


def virtual_trace(work, n=2, module=trace):
    def traced_work(comm):
        traced = module.Traced(comm)
        work(traced)
        return gather_trace(comm, traced)

    recording = VirtualCluster(n, Link(A, B)).run(traced_work)[0]
    assert recording is not None
    return recording


def exposes_what_computing_does_not_hide(seconds, module=trace):
    """A started receive lasts from start to finish; only what is left of it at the finish is exposed."""

    def overlapped(comm):
        if comm.rank == 0:
            comm.send(np.zeros(128), 1)
        else:
            finish = comm.start_recv(0)
            with comm.computing("forward"):
                comm.compute(seconds)
            finish()
            comm.compute(1.0)

    message = A + 1.0
    end = max(seconds, message)
    recording = virtual_trace(overlapped, module=module)
    assert recording.exposed(1) == end - seconds
    receive, post, forward, wait, _ = (s for s in recording.spans if s.rank == 1)
    assert receive == Span(1, "start_recv", 0, 1024, 0, 0.0, end)
    assert (post.what, post.start, post.stop) == ("post", 0.0, 0.0)
    assert forward == Span(1, "forward", None, 0, None, 0.0, seconds)
    assert (wait.what, wait.start, wait.stop) == ("wait", seconds, end)


@given(quarters=st.integers(0, 8))
def test_a_wait_that_computing_hides_is_not_exposed(quarters):
    exposes_what_computing_does_not_hide(quarters / 4)


@pytest.mark.parametrize(
    "change",
    [
        ('with self.record.span("wait", peer, tag):', "if True:"),
        ('with self.record.span("wait", peer, tag):', 'with self.record.span("recv", 0, tag):'),
        ("                self.record.end(i)\n", ""),
    ],
    ids=["the wait is not timed", "the wait is a receive of its own", "the finish does not end it"],
)
def test_the_law_of_hidden_time_catches(change):
    with pytest.raises((AssertionError, ValueError)):
        exposes_what_computing_does_not_hide(0.25, mutant("backends.comm.trace", change))


def test_blocking_receives_are_exposed_entirely_and_computing_is_not():
    def work(comm):
        comm.compute(0.5)
        if comm.rank == 0:
            comm.send(np.zeros(128), 1)
        else:
            comm.recv(0)

    trace = virtual_trace(work)
    assert [(s.what, s.start, s.stop) for s in trace.spans if s.rank == 1] == [
        ("compute", 0.0, 0.5),
        ("recv", 0.5, 0.5 + A + 1.0),
    ]
    assert trace.exposed(1) == A + 1.0


def test_virtual_time_is_the_same_traced():
    def work(comm):
        half = comm.split(comm.rank % 2)
        ring_allreduce(half, np.zeros(256))
        ring_allreduce(comm, np.zeros(256))
        return comm.time()

    assert VirtualCluster(4).run(work) == VirtualCluster(4).run(lambda comm: work(Traced(comm)))


def test_an_error_ends_the_span_and_counts_nothing():
    def work(comm):
        traced = Traced(comm)
        with pytest.raises(ValueError, match="rank 5 does not exist"):
            traced.send(np.ones(1), 5)
        with pytest.raises(ZeroDivisionError), traced.computing("forward"):
            raise ZeroDivisionError
        return gather_trace(comm, traced)

    trace = run_ranks(1, work)[0]
    assert trace is not None and [s.what for s in trace.spans] == ["forward"]
    assert trace.spans[0].stop >= trace.spans[0].start and trace.sent() == (0, 0)


def test_what_is_not_finished_yet_ends_where_the_trace_does():
    def work(comm):
        traced = Traced(comm)
        finish = traced.start_recv(comm.rank)
        trace = gather_trace(comm, traced)
        traced.send(np.ones(2), comm.rank)
        finish()
        finish()
        return trace, gather_trace(comm, traced)

    before, after = run_ranks(1, work)[0]
    assert before is not None and after is not None
    assert before.spans[0].stop >= before.spans[0].start and before.spans[0].bytes == 0
    assert after.ledgers[0].received() == (1, 16)  # finished twice, received once


def test_the_name_of_a_communication_is_refused():
    comm = run_ranks(1, lambda comm: comm)[0]
    with (
        pytest.raises(ValueError, match="'send' is the name of a communication; name what is computed"),
        Traced(comm).computing("send"),
    ):
        pass


# The clocks of ranks


@given(skews=st.lists(st.floats(-1e3, 1e3), min_size=3, max_size=3))
def test_clocks_that_differ_are_aligned_within_the_error_stated(skews):
    class Skewed(Wrapper):
        def time(self):
            return self.comm.time() + (skews[self.rank] if self.rank else 0.0)

    def work(comm):
        traced = Traced(Skewed(comm))
        comm.compute(1.0)
        with traced.computing("forward"):
            comm.compute(1.0)
        return gather_trace(comm, traced)

    trace = VirtualCluster(3, Link(1e-3)).run(work)[0]
    assert trace is not None
    assert trace.clock_error <= 1.001e-3  # half of an exchange
    for span in trace.spans:
        assert abs(span.start - 1.0) <= 1.001e-3 and span.stop - span.start == pytest.approx(1.0)


def test_threads_share_a_clock():
    def work(comm):
        traced = Traced(comm)
        ring_allreduce(traced, np.zeros(10))
        return gather_trace(comm, traced)

    trace = run_ranks(3, work)[0]
    assert trace is not None and trace.clock_error == 0.0
