"""Numbers that ranks send for a split model, and the errors of its gradients against one machine."""

import numpy as np
from minigrad_course.machines.virtual_cluster import VirtualCluster
from minigrad_course.shared.timed_layer import TimedLayer

from backends.comm import run_ranks
from backends.comm.collectives import barrier, ring_allreduce
from backends.comm.collectives.link import Link
from backends.comm.communicator import WithAllreduce
from backends.comm.trace import Trace, Traced, gather_trace
from backends.model_parallel import ModelParallel
from backends.pipeline import LayerWise
from minigrad import Tape, Tensor, nn, ops
from minigrad.data import Batch
from minigrad.serial import Serial


def largest_error(strategy, build, batch, ranks=3):
    """The largest error of loss and gradients on all ranks, relative to each one's largest element."""

    def gradients(backend):
        model = backend.place(build())
        loss = backend.step(model, batch, ops.cross_entropy)
        return {"loss": np.array(loss)} | backend.state.full_gradients(model)

    serial = gradients(Serial())
    return max(
        np.abs(of_rank[name] - g).max() / np.abs(g).max()
        for of_rank in run_ranks(ranks, lambda comm: gradients(strategy(comm)))
        for name, g in serial.items()
    )


def numbers_sent(plan, build, shape, ranks=3):
    """Numbers that rank 0 sends forward, and backward, where the input, of ``shape``, needs a gradient."""

    def work(comm):
        traced = Traced(comm)  # a communicator that counts what it sends
        model = ModelParallel(WithAllreduce(traced, ring_allreduce), plan).place(build())
        counts = [traced.record.ledger.sent().bytes]
        with Tape() as tape:
            y = model(Tensor(np.ones(shape), requires_grad=True))
        counts.append(traced.record.ledger.sent().bytes)
        tape.backward(y, np.ones(y.shape))
        counts.append(traced.record.ledger.sent().bytes)
        return np.diff(counts) // 8  # float64

    return run_ranks(ranks, work)[0]


def numbers_in_a_step(plan, build, batch, ranks):
    """The most numbers that a rank sends in a step with the batch, its loss included."""

    def work(comm):
        traced = Traced(comm)
        backend = ModelParallel(traced, plan)
        model = backend.place(build())
        before = traced.record.ledger.sent().bytes
        backend.step(model, batch, ops.cross_entropy)
        return (traced.record.ledger.sent().bytes - before) // 8

    return max(run_ranks(ranks, work))


def step_of_layers(ranks, layers, width, samples, seconds):
    """A step of equal layers, of which each rank has some, on a virtual cluster.

    Returns the trace of the step, its start and its length in seconds, and by rank the parameters held, the
    bytes sent and the gradients.
    """
    batch = Batch(*np.random.default_rng(1).normal(size=(2, samples, width)))

    def work(comm):
        traced, rng = Traced(comm), np.random.default_rng(0)
        linear = [TimedLayer(nn.Linear(width, width, rng=rng), traced, seconds) for _ in range(layers)]
        backend = LayerWise(traced) if comm.size > 1 else Serial()
        model = backend.place(nn.Sequential(*linear).to(dtype=np.float64))
        weights = sum(p.size for p in model.parameters())
        barrier(comm)
        start, before = comm.time(), traced.record.ledger.sent().bytes
        backend.step(model, batch, ops.mse)
        stop, nbytes = comm.time(), traced.record.ledger.sent().bytes - before
        return gather_trace(comm, traced), start, stop, (weights, nbytes, backend.state.full_gradients(model))

    results = VirtualCluster(ranks, Link(20e-6, 1.25e9)).run(work)
    trace, start, *_ = results[0]
    step = Trace(tuple(span for span in trace.spans if span.start >= start), trace.ledgers)
    return step, start, max(stop for _, _, stop, _ in results) - start, [r[3] for r in results]
