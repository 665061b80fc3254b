"""Numbers that a rank sends for a split convolution, and bytes of all ranks in a step of a split network."""

import numpy as np

from backends.comm import run_ranks
from backends.comm.collectives import ring_allreduce
from backends.comm.communicator import WithAllreduce
from backends.comm.trace import Traced
from backends.data_parallel import DataParallel
from backends.model_parallel import ModelParallel
from backends.model_parallel.layers.sharding import ShardedTensor
from minigrad import Tape, Tensor, nn, ops


def ring(comm, x):
    return ring_allreduce(comm, np.ascontiguousarray(x))


def convolution_sends(kind, side, *, kernel, ranks, rank, images, channels):
    """[messages, numbers] that ``rank`` sends for one convolution: forward, backward, and for the weights.

    The convolution, of ``channels`` to as many, follows another one, so its input is split already.
    """

    def work(comm):
        traced, rng = Traced(comm), np.random.default_rng(0)  # a communicator that counts what it sends
        before = nn.Conv2d(1, channels, 1, rng=rng, dtype=np.float64)
        layer = nn.Conv2d(
            channels, channels, kernel, padding=kernel // 2, rng=rng, bias=False, dtype=np.float64
        )
        plan = {"1": kind} if kind == "gathered-filters" else {"0": kind, "1": kind}
        model = ModelParallel(WithAllreduce(traced, ring), plan).place(nn.Sequential(before, layer))
        first, second = model.layers
        a = first.sharded_forward(ShardedTensor(Tensor(np.ones((images, 1, side, side)))))
        leaf = Tensor(a.local.data, requires_grad=True)  # the second layer alone
        counts = [traced.record.ledger.sent()]
        with Tape() as tape:
            y = second.sharded_forward(ShardedTensor(leaf, a.shards)).local
        counts.append(traced.record.ledger.sent())
        tape.backward(y, np.ones(y.shape))
        counts.append(traced.record.ledger.sent())
        for parameter, among in second.partial.items():  # as ``finish`` does
            ring_allreduce(among, parameter.grad)
        counts.append(traced.record.ledger.sent())
        return np.diff(np.array(counts) // (1, 8), axis=0)  # float64

    return run_ranks(ranks, work)[rank]


def step_bytes(build, plan, batch, ranks):
    """Bytes that all ranks send in a step; without a plan they share the batch."""

    def work(comm):
        traced, model = Traced(comm), build()
        among = WithAllreduce(traced, ring)
        backend = ModelParallel(among, plan) if plan else DataParallel(among)
        model = backend.place(model)
        before = traced.record.ledger.sent().bytes
        backend.step(model, batch, ops.cross_entropy)
        nbytes = traced.record.ledger.sent().bytes - before
        summary = 0 if plan else 4 * len(backend.summary)  # the loss, which travels with the gradients
        return nbytes - 2 * summary * (ranks - 1) / ranks

    return sum(run_ranks(ranks, work))
