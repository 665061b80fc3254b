"""What ranks send and how long steps last, counted and measured on virtual clocks."""

import numpy as np
from minigrad_course.machines.virtual_cluster import VirtualCluster
from minigrad_course.shared.timed_layer import TimedLayer

from backends.comm import run_ranks
from backends.comm.collectives import barrier
from backends.comm.trace import Traced, gather_trace
from minigrad import Tape, Tensor, nn, ops, optim
from minigrad.data import Batch


def batch_norm_numbers(strategy, model, batch, ranks):
    """Numbers that rank 0 sends in a forward and in a backward pass of the placed model, an array of two."""

    def work(comm):
        traced = Traced(comm)  # a communicator that counts what it sends
        placed = strategy(traced).place(model())
        counts = [traced.record.ledger.sent().bytes]
        with Tape() as tape:
            y = placed(Tensor(batch.x[comm.rank :: comm.size], requires_grad=True))
        counts.append(traced.record.ledger.sent().bytes)
        tape.backward(y, np.ones(y.shape))
        counts.append(traced.record.ledger.sent().bytes)
        return np.diff(counts) // 8  # float64

    return run_ranks(ranks, work)[0]


def messages_in_a_step(strategy, model, batch, ranks=3):
    """The last rank's messages in a step, its most samples on one tape, and all its gradients."""

    def work(comm):
        traced, samples = Traced(comm), []
        backend = strategy(traced)
        placed = backend.place(model())
        before = traced.record.ledger.sent().messages

        def loss_fn(out, y):
            samples.append(len(y))
            return ops.cross_entropy(out, y)

        backend.step(placed, batch, loss_fn)
        gradients = np.concatenate([g.ravel() for g in backend.state.full_gradients(placed).values()])
        return traced.record.ledger.sent().messages - before, max(samples), gradients

    return run_ranks(ranks, work)[-1]


def one_step(strategy, network, *, layers, width, seconds, ranks=4):
    """The trace of one step of equal layers, its start, how long it took, and its gradients."""
    batch = Batch(*np.random.default_rng(1).normal(size=(2, 4, width)).astype(np.float32))

    def work(comm):
        traced, rng = Traced(comm), np.random.default_rng(0)
        backend = strategy(traced)
        linear = [TimedLayer(nn.Linear(width, width, rng=rng), traced, seconds) for _ in range(layers)]
        model = backend.place(nn.Sequential(*linear))
        barrier(comm)  # rank 0, which sent its parameters to the others, is ready before them
        start = comm.time()
        backend.step(model, batch, ops.mse)
        stop = comm.time()
        gradients = np.concatenate([g.ravel() for g in backend.state.full_gradients(model).values()])
        return gather_trace(comm, traced), start, stop - start, gradients

    results = VirtualCluster(ranks, network).run(work)
    trace, start, _, gradients = results[0]
    return trace, start, max(seconds for _, _, seconds, _ in results), gradients


def adam_state_and_bytes(strategy, model, batch, ranks=4):
    """On the last rank: bytes of Adam's state after two steps, bytes sent in the second, and parameters."""

    def work(comm):
        traced = Traced(comm)
        backend = strategy(traced)
        placed = backend.place(model())
        optimizer = optim.Adam(placed.parameters())
        for _ in range(2):
            before = traced.record.ledger.sent().bytes
            optimizer.zero_grad()
            backend.step(placed, batch, ops.cross_entropy)
            backend.update(placed, optimizer)
        state = sum(a.nbytes for part in optimizer.state for a in part.values() if isinstance(a, np.ndarray))
        sent = traced.record.ledger.sent().bytes - before
        backend.finalize(placed)
        return state, sent, sum(p.size for p in placed.parameters())

    return run_ranks(ranks, work)[-1]


class TimedSamples(nn.Module):
    """Takes ``seconds`` of the rank's virtual clock for each sample."""

    def __init__(self, comm, seconds):
        self.comm, self.seconds = comm, seconds

    def forward(self, x):
        self.comm.compute(self.seconds * len(x))
        return x


def seconds_of_steps(strategy, network, batch, *, sample, serial=0.0, slowness=None, ranks=4, steps=4):
    """Virtual seconds of each step: ``sample`` for a sample, ``serial`` on every rank, and messages.

    ``slowness`` has the ranks that take so many times as long.
    """

    def work(comm):
        backend, rng = strategy(comm), np.random.default_rng(0)
        layers = TimedSamples(comm, sample), nn.Flatten(), nn.Linear(784, 10, rng=rng)
        model, seconds = backend.place(nn.Sequential(*layers)), []
        for _ in range(steps):
            barrier(comm)
            start = comm.time()
            comm.compute(serial)
            backend.step(model, batch, ops.cross_entropy)
            seconds.append(comm.time() - start)
        return seconds

    return np.max(VirtualCluster(ranks, network, slowness=slowness or {}).run(work), axis=0)
