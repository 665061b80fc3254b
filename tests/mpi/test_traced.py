"""Tracing real MPI: every promise and every all-reduce still holds, and all that was sent was received."""

import json

import pytest

TRACED = """
from backends.comm import collectives
from tests.backends.comm.conformance import PROMISES, both_sides_are_named_where_they_differ
from backends.comm.trace import Traced, gather_trace
from backends.laws import allreduce_sums

traced = Traced(comm)
for promise in PROMISES:
    # A message that is refused for its shape was sent and never handed over, so it has a ledger of its own.
    promise(Traced(comm) if promise is both_sides_are_named_where_they_differ else traced)
for reduce in (
    collectives.allreduce,
    collectives.naive_allreduce,
    collectives.gather_broadcast_allreduce,
    collectives.reduce_broadcast_allreduce,
    collectives.ring_allreduce,
    collectives.doubling_allreduce,
    collectives.rabenseifner_allreduce,
):
    for n in (0, 1, comm.size, 4 * comm.size + 1, 20_000):
        allreduce_sums(reduce, traced, n)
trace = gather_trace(comm, traced)
if comm.rank == 0:
    for a, sender in enumerate(trace.ledgers):
        for b, receiver in enumerate(trace.ledgers):
            sent, received = sender.sent(to=b), receiver.received(source=a)
            assert sent == received and sent.bytes > 0, (a, b, sent, received)
"""


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_a_traced_communicator_keeps_every_promise_and_loses_no_byte(pool, n):
    pool.run(n, TRACED)


def test_the_trace_of_a_training_run_accounts_for_every_byte(processes):
    job = processes.minigrad(
        "train", "--net", "mlp", "--epochs", "1", "--batch", "500", "--data", "2", "--trace", "run.json"
    )
    assert job.status == 0, job.err
    trace = json.loads((processes.folder / "run.json").read_text(encoding="utf-8"))
    moving = [e for e in trace["traceEvents"] if e["ph"] in "Xb"]
    sends = [e for e in moving if e["cat"] == "sent"]
    assert {e["tid"] for e in sends} >= {0, 1}
    assert sum(e["args"]["bytes"] for e in sends) == trace["otherData"]["bytes_sent"] > 0
