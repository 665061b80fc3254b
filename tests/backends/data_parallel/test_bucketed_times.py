"""Laws of backends/data_parallel/bucketed.py: on the virtual clock a step in buckets takes what the model
of the lecture says, to the bit.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from minigrad_course.machines.virtual_cluster import VirtualCluster

from backends.comm.collectives import doubling_allreduce
from backends.comm.collectives.link import Link
from backends.comm.trace import Trace, Traced
from backends.data_parallel.bucketed import Bucketed
from backends.data_parallel.flat import buckets
from minigrad import nn, ops
from minigrad.data import Batch
from minigrad.op import op
from tests.backends.comm.communication_time import communicating, hidden

# Powers of two, so that every sum below is exact and times can be compared with ==.
EVERYTHING = 1 << 30
START = 16.0  # seconds, when all ranks have long been placed
A, B = 2.0**-10, 2.0**20


@op
def working(x, *, comm, forward, backward):
    """``x``, after ``forward`` seconds of computing; its gradient after ``backward``."""
    comm.compute(forward)

    def pull(g):
        comm.compute(backward)
        return g

    return x, (pull,)


class Timed(nn.Module):
    """A layer for each of ``layers``: its number of weights, and seconds of its forward and its backward."""

    def __init__(self, comm, layers):
        self.comm, self.seconds = comm, [(f, b) for _, f, b in layers]
        self.layers: list[nn.Module] = [Row(n) for n, _, _ in layers]

    def forward(self, x):
        x = x.sum(axis=1, keepdims=True)
        for layer, (forward, backward) in zip(self.layers, self.seconds, strict=True):
            x = working(layer(x), comm=self.comm, forward=forward, backward=backward)
        return x


class Row(nn.Module):
    """x times the sum of n weights."""

    def __init__(self, n):
        self.weight = nn.Parameter(np.zeros(n))

    def forward(self, x):
        return x * self.weight.sum()


def timed(layers, ranks, nbytes, progress="thread"):
    """Seconds of a step, on all ranks alike; and what of it was communication, hidden and exposed."""

    def work(comm):
        traced = Traced(comm)
        backend = Bucketed(
            traced, doubling_allreduce, bucket_bytes=nbytes, first_bucket_bytes=nbytes, progress=progress
        )
        model = backend.place(Timed(traced, layers))
        batch = Batch(np.ones((ranks, 2)), np.zeros((ranks, 1)))
        comm.compute(START - comm.time())
        traced.record.spans.clear()
        backend.step(model, batch, ops.mse)
        trace = Trace(tuple(s._replace(rank=0) for s in traced.record.closed()), ())
        return comm.time() - START, communicating(trace, 0), hidden(trace, 0), trace.exposed(0)

    (results, *others) = VirtualCluster(ranks, Link(A, B)).run(work)
    assert all(other == results for other in others)
    return results


def planned(layers, ranks, nbytes):
    """Forward, backward, and of each bucket the cost of its sum and when backward has filled it (seconds)."""
    parameters = [nn.Parameter(np.zeros(n)) for n, _, _ in layers]
    numbers = {id(p): i for i, p in enumerate(parameters)}
    forward, backward = sum(f for _, f, _ in layers), sum(b for _, _, b in layers)
    costs, ready = [], []
    for group in buckets(parameters, nbytes):
        size = sum(p.size for p in group)
        earliest = min(numbers[id(p)] for p in group)
        ready.append(sum(b for _, _, b in layers[earliest:]))
        costs.append([size, earliest])
    report = 2 + ranks + len(layers)
    rounds = ranks.bit_length() - 1
    costs = [rounds * (A + 8 * (size + (report if earliest == 0 else 0)) / B) for size, earliest in costs]
    return forward, backward, costs, ready


eighths = st.integers(0, 8).map(lambda n: n / 8192)
layers_of_nets = st.lists(st.tuples(st.integers(1, 200), eighths, eighths), min_size=1, max_size=6)


@given(layers=layers_of_nets, ranks=st.sampled_from([1, 2, 4]), nbytes=st.integers(1, 2000))
def test_a_step_takes_forward_and_the_longer_of_backward_and_the_last_sum(layers, ranks, nbytes):
    """C_j = max(R_j, C_(j-1)) + c_j, and what of the sums is longer than backward is exposed."""
    forward, backward, costs, ready = planned(layers, ranks, nbytes)
    done = 0.0
    for cost, at in zip(costs, ready, strict=True):
        done = max(at, done) + cost
    step, communicating, hidden, exposed = timed(layers, ranks, nbytes)
    assert step == forward + max(backward, done)
    assert communicating == sum(costs)
    assert exposed == step - forward - backward and hidden == communicating - exposed
    assert forward + max(backward, sum(costs)) <= step <= forward + backward + sum(costs)


@given(layers=layers_of_nets, ranks=st.sampled_from([2, 4]), nbytes=st.integers(1, 2000))
@pytest.mark.parametrize("progress", ["test", "none", "blocking"])
def test_without_progress_nothing_is_hidden(progress, layers, ranks, nbytes):
    forward, backward, costs, _ = planned(layers, ranks, nbytes)
    step, _, hidden, exposed = timed(layers, ranks, nbytes, progress)
    assert step == forward + backward + sum(costs) and exposed == sum(costs) and hidden == 0


@given(layers=layers_of_nets, ranks=st.sampled_from([2, 4]))
def test_one_bucket_overlaps_with_nothing(layers, ranks):
    assert timed(layers, ranks, EVERYTHING)[0] == timed(layers, ranks, EVERYTHING, "none")[0]


def test_the_best_number_of_buckets_lies_between_one_and_one_a_layer():
    layers = [(64, 0.0, 2.0**-11)] * 32
    seconds = {k: timed(layers, 2, 8 * 64 * 32 // k)[0] for k in (1, 2, 4, 8, 16, 32)}
    best = min(seconds, key=lambda k: seconds[k])
    assert 1 < best < 32, seconds
