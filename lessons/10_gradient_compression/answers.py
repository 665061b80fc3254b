"""The answers to the questions on lesson 10, and the laws that show them."""

import numpy as np
from minigrad_course.lesson.questions import Question

from backends.comm import run_ranks
from backends.comm.collectives import ring_allreduce
from backends.comm.trace import Traced
from backends.data_parallel import Compressed
from backends.data_parallel.compression import Threshold, TopK
from backends.data_parallel.flat import FlatLayout
from minigrad import Parameter, nn, ops, optim
from minigrad.data import Batch
from minigrad.train import fit

FIGURES = np.zeros(0)  # no other numbers travel with the gradients


def sent_by(threshold, steps=100, gradient=0.25):
    """The sum that is sent in all steps, the number of messages, and the residual at the end."""

    def work(comm):
        compressor, error, sums = Threshold(threshold=threshold), np.zeros(1), []
        compressor.start(FlatLayout([Parameter(np.zeros(1))]), comm.rank, comm.size)
        for _ in range(steps):
            v = compressor.apply_feedback(error, np.array([gradient]))
            total, own, _ = compressor.exchange(comm, v, FIGURES, ring_allreduce)
            error = v - own
            sums.append(total[0])
        return sum(sums), np.count_nonzero(sums), error[0]

    return run_ranks(1, work)[0]


def large_threshold(student):
    threshold = student.THRESHOLD
    total, messages, rest = sent_by(threshold)
    assert threshold == 3, f"with {threshold:g} a rank sends {total:g} of 25; take a threshold of 3"
    return (
        f"a rank sends {total:g} of 25 in {messages} messages and keeps {rest:g}: the threshold only changes "
        "how long a gradient waits, and the residual is never more than the threshold"
    )


def bytes_sent(exchange, ranks=8, length=4096):
    """By rank 0, for a gradient of ``length`` float32."""

    def work(comm):
        traced = Traced(comm)
        exchange(traced, np.random.default_rng(comm.rank).normal(size=length).astype(np.float32))
        return traced.record.ledger.sent().bytes

    return run_ranks(ranks, work)[0]


def quarter(student):
    density = student.DENSITY

    def top_k(comm, x):
        compressor = TopK(density=density)
        compressor.start(FlatLayout([Parameter(np.zeros_like(x))]), comm.rank, comm.size)
        compressor.exchange(comm, x, FIGURES.astype(np.float32), ring_allreduce)

    sparse, dense = bytes_sent(top_k), bytes_sent(ring_allreduce)
    assert density == 1 / 4, f"with a density of {density:g} a rank sends {sparse:,} bytes; take 1 / 4"
    return (
        f"a rank sends {sparse:,} bytes, {sparse / dense:g} times the {dense:,} of the dense ring: the ring "
        "adds on the way, but each rank selects other entries, so all of them go to all ranks"
    )


def end(start, feedback):
    """The two weights after 120 steps by scaled signs."""
    samples = Batch(np.array([[1.5, -0.5], [-0.5, 1.5]]), np.zeros((2, 1)))

    def work(comm):
        backend = Compressed(comm, ring_allreduce, compress="scaled-sign", feedback=feedback)
        model = nn.Linear(2, 1, bias=False, rng=np.random.default_rng(0), dtype=np.float64)
        model.weight.data[...] = start
        model = backend.place(model)
        fit(model, optim.SGD(model.parameters(), 0.1), ops.mse, samples, backend=backend, epochs=120)
        return model.weight.data[0]

    return run_ranks(2, work)[0]


def point(weights):
    return f"({weights[0]:.2f}, {weights[1]:.2f})"


def signs(student):
    start = tuple(student.START)
    there, back = end(start, feedback=False), end((1.8, 0.2), feedback=True)
    assert start == (1.8, -1.8), f"from {start} the steps end at {point(there)}; start at (1.8, -1.8)"
    there = abs(there) if abs(there).max() < 1e-9 else there
    return (
        f"the steps end at {point(there)}: both signs move the weights along (1, -1) only, so their sum "
        "never changes: here it is 0, before it was 2. With error feedback they end from (1.8, 0.2) too at "
        f"{point(back)}"
    )


QUESTIONS = [
    Question("c", large_threshold, (("THRESHOLD = 1.0", "THRESHOLD = 3.0"),)),
    Question("a", quarter, (("DENSITY = 1 / 64", "DENSITY = 1 / 4"),)),
    Question("b", signs, (("START = (1.8, 0.2)", "START = (1.8, -1.8)"),)),
]
