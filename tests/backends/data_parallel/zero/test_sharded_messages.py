"""Laws of backends/data_parallel/zero/sharded.py and flat_parameter.py: messages and bytes of sharded
state are the closed form; overlap hides their time.
"""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from minigrad_course.machines.virtual_cluster import VirtualCluster

from backends.comm import run_ranks
from backends.comm.collectives.link import Link
from backends.comm.trace import Traced
from backends.data_parallel.flat import buckets
from backends.data_parallel.zero.gathered_weights import group_by_owner
from backends.data_parallel.zero.sharded import Sharded
from minigrad import nn, ops
from minigrad.data import Batch, shares
from minigrad.op import op
from minigrad.tensor import Tensor
from tests.backends.data_parallel.zero.sharded_laws import OPTIMIZERS, STAGES
from tests.nets import convolutional
from tests.nets import small_images_of as batches_of


def expected(stage, rank, ranks, units, report, itemsize=8):
    """(messages, bytes) that a rank sends in a step.

    A reduce-scatter of all parts but its own, one all-gather or two of all but the next, and a report.
    """
    gathers = 2 if stage == 3 else 1
    elements = (ranks - 1) * report
    for unit in units:
        sizes = [part.stop - part.start for part in shares(sum(p.size for p in unit), ranks)]
        elements += sum(sizes) - sizes[rank] + gathers * (sum(sizes) - sizes[(rank + 1) % ranks])
    return (ranks - 1) * ((1 + gathers) * len(units) + 1), elements * itemsize


@pytest.mark.parametrize("stage", STAGES)
@given(
    ranks=st.integers(1, 6),
    size=st.integers(1, 9),
    bucket_bytes=st.sampled_from([1, 100, 1 << 20]),
    overlap=st.booleans(),
)
def test_messages_and_bytes_are_the_closed_form(stage, ranks, size, bucket_bytes, overlap):
    def count(comm):
        traced = Traced(comm)
        backend = Sharded(traced, stage=stage, bucket_bytes=bucket_bytes, overlap=overlap)
        model = backend.place(convolutional(np.random.default_rng(0)).to(dtype=np.float64))
        method = OPTIMIZERS["momentum"](model.parameters())
        units = [unit.parameters for unit in backend.flats]
        for batch in batches_of([size, size]):
            before = traced.record.ledger.sent()
            method.zero_grad()
            backend.step(model, batch, ops.cross_entropy)
            backend.update(model, method)
            sent = traced.record.ledger.sent()
            actual = sent.messages - before.messages, sent.bytes - before.bytes
            assert actual == expected(stage, comm.rank, comm.size, units, len(backend.summary))

    run_ranks(ranks, count)


def test_the_volume_is_that_of_the_paper_where_parts_are_equal():
    rng = np.random.default_rng(0)
    model = nn.Sequential(nn.Linear(8, 8, rng=rng), nn.Linear(8, 4, bias=False, rng=rng))
    n = sum(p.size for p in model.parameters())
    for stage, times in ((1, 2), (2, 2), (3, 3)):
        groups = group_by_owner(model) if stage == 3 else buckets(model.parameters(), 1 << 20)
        assert expected(stage, 0, 4, groups, 0)[1] == times * n * 8 * 3 // 4


class Around(nn.Module):
    """Shares its weight with a layer that it calls, whose unit is then open already."""

    def __init__(self, rng):
        self.inner = nn.Linear(6, 6, rng=rng)
        self.weight = self.inner.weight
        self.last = nn.Linear(6, 3, rng=rng)

    def forward(self, x):
        h = ops.tanh(ops.linear(x.reshape(-1, 6), self.weight))
        return self.last(ops.tanh(self.inner(h)))


@pytest.mark.parametrize("build", [Around, convolutional])
def test_fetching_ahead_fetches_nothing_more(build):
    def count(comm, overlap):
        traced = Traced(comm)
        backend = Sharded(traced, stage=3, overlap=overlap)
        model = backend.place(build(np.random.default_rng(0)).to(dtype=np.float64))
        (batch,) = batches_of([5])
        acts = (lambda: backend.step(model, batch, ops.cross_entropy), lambda: model(Tensor(batch.x)))
        sent = [traced.record.ledger.sent()]
        for act in (0, 0, 1, 0, 0, 1):  # the model alone, without a tape, as in evaluation
            acts[act]()
            sent.append(traced.record.ledger.sent())
        backend.finalize(model)
        return [(b.messages - a.messages, b.bytes - a.bytes) for a, b in pairwise(sent)]

    assert run_ranks(3, lambda comm: count(comm, True)) == run_ranks(3, lambda comm: count(comm, False))


# Overlap, on a clock where a layer's weights travel in a second, as long as its forward takes.


@op
def two_seconds_back(x, *, comm):
    def back(g):
        comm.compute(2.0)
        return g

    return x, (back,)


class Slow(nn.Module):
    """A layer whose forward takes a second, and its backward two."""

    def __init__(self, comm, rng):
        self.linear = nn.Linear(16, 16, rng=rng, dtype=np.float64)
        self.comm = comm

    def forward(self, x):
        self.comm.compute(1.0)
        return two_seconds_back(self.linear(x), comm=self.comm)


def seconds_of_the_second_step(stage, overlap, layers=3):
    """Step and update apart, on 2 ranks; a half of a layer's weights, or of its gradient, takes a second."""
    layer = (16 * 16 + 16) * 8
    cluster = VirtualCluster(2, Link(0.0, layer / 2))
    batch = Batch(np.ones((4, 16)), np.ones((4, 16)))

    def train(comm):
        rng = np.random.default_rng(0)
        backend = Sharded(comm, stage=stage, overlap=overlap, bucket_bytes=layer)
        model = backend.place(nn.Sequential(*(Slow(comm, rng) for _ in range(layers))))
        method = OPTIMIZERS["momentum"](model.parameters())
        backend.step(model, batch, ops.mse)
        backend.update(model, method)
        model(Tensor(batch.x))  # as in evaluation: it must not disturb what is known of steps
        start = comm.time()
        backend.step(model, batch, ops.mse)
        stepped = comm.time()
        backend.update(model, method)
        report = len(backend.summary) * 8 / (layer / 2)
        return stepped - start - report, comm.time() - stepped

    results = cluster.run(train)
    assert results[0] == pytest.approx(results[1])
    return pytest.approx(results[0])


@pytest.mark.parametrize(
    ("stage", "overlap", "step", "update"),
    [
        (1, False, 3 * (1 + 2) + 3, 3),
        (2, False, 3 * (1 + 2 + 1), 3),
        (2, True, 3 * (1 + 2) + 1, 3),  # the first layer's reduction, the last in backward, is exposed
        (3, False, 3 * (1 + 1) + 3 * (1 + 2 + 1), 0),
        (3, True, 1 + 3 * (1 + 2) + 1, 0),  # and the first layer's all-gather
    ],
)
def test_overlap_hides_all_but_the_ends(stage, overlap, step, update):
    assert seconds_of_the_second_step(stage, overlap) == (step, update)
