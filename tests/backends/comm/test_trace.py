"""Laws of backends/comm/trace.py: tracing changes no result, and what it counts and times is what
happened; each law catches its bug.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from minigrad_course.machines.virtual_cluster import VirtualCluster

from backends.comm import run_ranks, trace
from backends.comm.collectives import allreduce, ring_allreduce
from backends.comm.communicator import Wrapper
from backends.comm.trace import Traced, gather_trace
from tests.backends.comm.conformance import PROMISES
from tests.bugs.mutant import mutant

HOW = ("send", "start_send", "start_recv", "both", "any")
shifts = st.tuples(
    st.sampled_from(HOW),
    st.integers(0, 3),
    st.integers(0, 5),
    st.sampled_from(["float64", "float32", "int8"]),
)
programs = st.lists(st.tuples(st.booleans(), shifts), min_size=1, max_size=6)


def shift(comm, how, by, x, tag):
    """Pass ``x`` to the rank ``by`` further on, by one of the ways a communicator has."""
    to, source = (comm.rank + by) % comm.size, (comm.rank - by) % comm.size
    receive = comm.start_recv(source, tag) if how in ("start_recv", "both") else None
    finish = comm.start_send(x, to, tag) if how in ("start_send", "both") else comm.send(x, to, tag)
    received = receive() if receive else comm.recv_any(tag)[1] if how == "any" else comm.recv(source, tag)
    if finish:
        finish()
    return received


def run(comm, program):
    """A program of ring shifts, some among the ranks of equal parity; what the rank ended up with."""
    half = comm.split(comm.rank % 2, key=-comm.rank)
    results = []
    for tag, (in_half, (how, by, n, dtype)) in enumerate(program):
        x = np.full(n, 10 * comm.rank + tag, dtype)
        results.append(shift(half if in_half else comm, how, by, x, tag))
    return half.rank, [(x.dtype.name, x.tolist()) for x in results]


def traced_run(program, ranks, module=trace):
    """The results of ``program`` traced, by rank, and the trace."""

    def work(comm):
        traced = module.Traced(comm)
        return run(traced, program), gather_trace(comm, traced)

    results = run_ranks(ranks, work)
    outcome = results[0][1]
    assert outcome is not None
    return [result for result, _ in results], outcome


# The laws


def is_transparent(program, ranks, module=trace):
    """A program has the same results traced as untraced."""
    assert traced_run(program, ranks, module)[0] == run_ranks(ranks, lambda comm: run(comm, program))


def conserves(program, ranks, module=trace):
    """What each rank sent to another is what that other received from it, in the ledgers and in the spans."""
    recording = traced_run(program, ranks, module)[1]
    for q in range(ranks):
        for r in range(ranks):
            assert recording.ledgers[q].sent(to=r) == recording.ledgers[r].received(source=q), (q, r)
            sent = [
                s.bytes
                for s in recording.spans
                if s.rank == q and s.peer == r and s.what in ("send", "start_send")
            ]
            assert (len(sent), sum(sent)) == recording.ledgers[q].sent(to=r)


def counts_payload(program, ranks, module=trace):
    """Messages and bytes are those of the program: one message of ``n`` elements per shift and rank."""
    recording = traced_run(program, ranks, module)[1]
    sizes = [n * np.dtype(dtype).itemsize for _, (_, _, n, dtype) in program]
    assert recording.sent() == (ranks * len(program), ranks * sum(sizes))


LAWS = [is_transparent, conserves, counts_payload]


@pytest.mark.parametrize("law", LAWS)
@given(program=programs, ranks=st.integers(1, 5))
def test_tracing(law, program, ranks):
    law(program, ranks)


EVERY_WAY = [(half, (how, 1, 3, "float32")) for how in HOW for half in (False, True)]
BUGS = {
    "started sends are forgotten": (
        conserves,
        ("        self.record.message(i, x.nbytes)\n        return finish", "        return finish"),
    ),
    "elements are counted for bytes": (
        counts_payload,
        (
            "self.ledger.add(span.what, span.peer, nbytes)",
            "self.ledger.add(span.what, span.peer, nbytes // 4)",
        ),
    ),
    "messages of a group are counted for its ranks, not the world's": (
        conserves,
        ("        return self.ranks[rank]", "        return rank"),
    ),
    "the finished receive is not counted": (
        conserves,
        ("                if x is not None:\n", "                if False:\n"),
    ),
    "who was heard is not written down": (
        conserves,
        ("_replace(peer=self.peer(source))", "_replace(peer=None)"),
    ),
    "the tag is dropped": (is_transparent, ("self.comm.send(x, to, tag)", "self.comm.send(x, to)")),
    "the key of a split is dropped": (
        is_transparent,
        ("self.comm.split(color, key)", "self.comm.split(color)"),
    ),
}


@pytest.mark.parametrize("bug", BUGS)
def test_the_laws_catch(bug, monkeypatch):
    monkeypatch.setenv("MINIGRAD_TIMEOUT", "5")
    law, *changes = BUGS[bug]
    law(EVERY_WAY, 3)
    with pytest.raises((AssertionError, RuntimeError)):
        law(EVERY_WAY, 3, mutant("backends.comm.trace", *changes))


# The same promises as any communicator

WORLDS = {
    "threads": run_ranks,
    "rendezvous, in turns": lambda n, fn: run_ranks(n, fn, seed=n, rendezvous=True),
    "virtual": lambda n, fn: VirtualCluster(n, jitter=0.5).run(fn),
}


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("promise", PROMISES, ids=lambda p: p.__name__)
def test_a_traced_communicator_keeps(promise, world):
    WORLDS[world](3, lambda comm: promise(Traced(comm)))
    WORLDS[world](2, lambda comm: promise(Traced(Traced(comm))))


def test_a_traced_communicator_offers_what_the_transport_offers():
    class WithMore(Wrapper):
        local_rank = 7  # pyright: ignore

        def __init__(self, comm):
            super().__init__(comm)
            self.has_own_allreduce = True

        def allreduce(self, x):
            return 2 * x

    def work(comm):
        traced = Traced(WithMore(comm))
        assert traced.local_rank == 7
        np.testing.assert_array_equal(allreduce(traced, np.ones(3)), [2, 2, 2])
        (span,) = traced.record.spans
        assert (span.what, span.peer, span.bytes) == ("allreduce", None, 24)
        assert traced.record.ledger.sent() == (1, 24) and traced.record.ledger.received() == (0, 0)
        assert Traced(comm).local_rank == comm.rank

    run_ranks(2, work)


def test_an_allreduce_made_of_messages_is_recorded_as_those():
    def work(comm):
        traced = Traced(comm)
        np.testing.assert_array_equal(allreduce(traced, np.ones(3)), [2, 2, 2])
        np.testing.assert_array_equal(traced.start_allreduce(np.ones(3))(), [2, 2, 2])
        return traced.record.ledger.sent()

    assert run_ranks(2, work) == [(2, 48), (2, 48)]


@given(p=st.integers(2, 5), n=st.integers(0, 20))
def test_the_ledger_of_a_ring_is_the_closed_form(p, n):
    def work(comm):
        traced = Traced(comm)
        ring_allreduce(traced, np.zeros(n))
        return gather_trace(comm, traced)

    trace = run_ranks(p, work)[0]
    assert trace is not None and trace.sent() == (2 * p * (p - 1), 8 * 2 * (p - 1) * n)
    assert all(
        set(ledger.counts)
        <= {(w, q) for w in ("send", "start_send", "recv", "start_recv") for q in ((r - 1) % p, (r + 1) % p)}
        for r, ledger in enumerate(trace.ledgers)
    )
