"""The networks of lesson 10, trained on the digits by four ranks with some strategy, and the bytes sent."""

import math
from copy import deepcopy

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


def wide_network(seed):
    """784-128-10; weights of variance 2 / n_in (He et al. 2015), as in benchmarks/published.py."""
    rng = np.random.default_rng(seed)
    layers = [nn.Linear(784, 128, rng=rng), nn.Linear(128, 10, rng=rng)]
    for layer in layers:
        n_out, n_in = layer.weight.shape
        layer.weight.data[...] = rng.normal(0, (2 / n_in) ** 0.5, (n_out, n_in))
        layer.bias.data[...] = 0
    return nn.Sequential(nn.Flatten(), layers[0], nn.ReLU(), layers[1])


def dense(comm):
    return DataParallel(comm, ring_allreduce)


def compressed(name, **settings):
    return lambda comm: Compressed(comm, ring_allreduce, compress=name, **settings)


def train(strategy, rate=RATE, momentum=0.0, watch=None):
    """The loss and accuracy at the end, the loss of every step, the bytes a rank sends in a step (the mean).

    ``strategy`` takes a communicator; ``watch(backend, model)`` is called on every rank after every step.
    """
    steps = EPOCHS * math.ceil(len(digits.train) / BATCH)
    settings = {"epochs": EPOCHS, "batch_size": BATCH, "schedule": cosine(rate, steps)}
    return trained(strategy, network(), digits.train, rate, momentum, watch, **settings)


def train_wide(strategy, momentum, seed):
    """Train ``wide_network`` on 4,000 digits: batches of 64, four epochs, a learning rate of 0.2."""
    settings = {"epochs": 4, "batch_size": 64, "seed": seed}
    return trained(strategy, wide_network(seed), digits.train[:4000], 0.2, momentum, None, **settings)


def trained(strategy, start, data, rate, momentum, watch, **settings):
    def work(comm):
        comm = Traced(comm)
        backend = strategy(comm)
        model = backend.place(deepcopy(start))
        before = comm.record.ledger.sent().bytes
        losses = fit(
            model,
            optim.SGD(model.parameters(), rate, momentum=momentum),
            ops.cross_entropy,
            data,
            backend=backend,
            on_step=lambda *_: watch and watch(backend, model),
            **settings,
        ).losses
        sent = comm.record.ledger.sent().bytes - before
        loss = ops.cross_entropy(model(Tensor(data.x)), data.y).item()
        return loss, accuracy(model, digits.test), losses, sent

    results = run_ranks(RANKS, work)
    return *results[0][:3], sum(sent for *_, sent in results) / RANKS / len(results[0][2])
