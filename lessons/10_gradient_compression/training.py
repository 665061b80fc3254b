"""The network of lesson 10, trained on the digits by four ranks with some strategy, and what they sent."""

import math

import numpy as np

from backends.comm import run_ranks
from backends.comm.collectives import ring_allreduce
from backends.comm.trace import Traced
from backends.data_parallel import Compressed, DataParallel
from minigrad import Tensor, mnist, nn, ops, optim
from minigrad.lr_schedules import cosine
from minigrad.train import accuracy, fit

RANKS, BATCH, EPOCHS, RATE = 4, 100, 2, 0.5
digits = mnist.load("mnist5k")


def network():
    rng = np.random.default_rng(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 32, rng=rng), nn.ReLU(), nn.Linear(32, 10, rng=rng))


def dense(comm):
    return DataParallel(comm, ring_allreduce)


def compressed(name, **settings):
    return lambda comm: Compressed(comm, ring_allreduce, compress=name, **settings)


def train(strategy, rate=RATE, momentum=0.0, epochs=EPOCHS, schedule=cosine, watch=None):
    """The loss and accuracy at the end, the loss of every step, the bytes a rank sends in a step (the mean).

    ``strategy`` takes a communicator; ``watch(backend, model)`` is called on every rank after every step.
    """
    steps = epochs * math.ceil(len(digits.train) / BATCH)

    def work(comm):
        comm = Traced(comm)
        backend = strategy(comm)
        model = backend.place(network())
        before = comm.record.ledger.sent().bytes
        losses = fit(
            model,
            optim.SGD(model.parameters(), rate, momentum=momentum),
            ops.cross_entropy,
            digits.train,
            backend=backend,
            epochs=epochs,
            batch_size=BATCH,
            schedule=schedule(rate, steps),
            on_step=lambda *_: watch and watch(backend, model),
        ).losses
        sent = comm.record.ledger.sent().bytes - before
        loss = ops.cross_entropy(model(Tensor(digits.train.x)), digits.train.y).item()
        return loss, accuracy(model, digits.test), losses, sent

    results = run_ranks(RANKS, work)
    return *results[0][:3], sum(sent for *_, sent in results) / RANKS / steps
