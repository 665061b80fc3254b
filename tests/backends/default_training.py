"""Training by a server's default rate, whoever is slow: a small net on digits, in seeded turns."""

from functools import cache
from inspect import signature

import numpy as np
from minigrad_course.machines.virtual_cluster import VirtualCluster

from backends.comm.collectives.link import Link
from backends.data_parallel import parameter_server
from backends.data_parallel.flat import FlatLayout
from backends.data_parallel.parameter_server.consistency import Asynchronous
from backends.data_parallel.parameter_server.server import Push, Server
from backends.stale_rates import find_stale_rate
from minigrad import mnist, nn, ops, optim
from minigrad.data import Batch, minibatches, shares
from minigrad.lr_schedules import cosine
from minigrad.serial import Serial
from minigrad.train import accuracy, fit

RATE, EPOCHS, BATCH = 0.1, 5, 64
STEPS = EPOCHS * -(-5000 // BATCH)
DEFAULT = signature(parameter_server.ParameterServer).parameters["stale_rate"].default
METHODS = {
    "momentum": lambda parameters, lr: optim.SGD(parameters, lr, momentum=0.9),
    "nesterov": lambda parameters, lr: optim.SGD(parameters, lr, momentum=0.9, nesterov=True),
    "heavy-ball": optim.HeavyBall,
    "lars": optim.LARS,
    "adam": optim.Adam,
    "adagrad": optim.Adagrad,
}
RATES = {"lars": 10.0, "adam": 0.003, "adagrad": 0.03}


@cache
def digits():
    """All 5,000 training digits and 1,000 to test, with every second row and column."""
    data = mnist.load("mnist5k")
    return [Batch(b.x[..., ::2, ::2].reshape(len(b), -1), b.y) for b in (data.train, data.test)]


def network(seed):
    rng = np.random.default_rng(seed)
    model = nn.Sequential(nn.Linear(196, 32, rng=rng), nn.ReLU(), nn.Linear(32, 10, rng=rng))
    return model.to(dtype=np.float32)


def trained(seed, place, backend=None, loss_fn=ops.cross_entropy, method="momentum"):
    """The test accuracy after ``fit``; 0 where the loss was not finite."""
    train, test = digits()
    model = place(network(seed))
    rate = RATES.get(method, RATE)
    optimizer = METHODS[method](model.parameters(), rate)
    try:
        fit(
            model, optimizer, loss_fn, train, backend=backend, epochs=EPOCHS, batch_size=BATCH, seed=seed,
            schedule=cosine(rate, STEPS),
        )  # fmt: skip
    except FloatingPointError:
        return 0.0
    return accuracy(model, test)


@cache
def serial(seed, method="momentum"):
    return trained(seed, lambda model: model, method=method)


def served(seed, workers, slowness=None, servers=1, method="momentum", **settings):
    """By the strategy on a virtual clock, a gradient's time drawn from 1 to 1.9 s, times the slowness."""

    def work(comm):
        backend = parameter_server.ParameterServer(comm, servers=servers, **settings)

        def loss(out, y):
            comm.compute(1.0)
            return ops.cross_entropy(out, y)

        return trained(seed, backend.place, backend, loss, method)

    cluster = VirtualCluster(
        workers + servers, Link(0.01), slowness=dict(enumerate(slowness or ())), jitter=0.9, seed=seed
    )
    return cluster.run(work)[0]


def injected(seed, workers, staleness, stale_rate=DEFAULT):
    """By one server to which every gradient comes ``staleness`` updates late, on one machine."""
    train, test = digits()
    model = network(seed)
    layout = FlatLayout(model.parameters(), 1)
    start = layout.weights()
    clocks = dict.fromkeys(range(workers), 0)
    server = Server(np.append(np.float32(0), start), layout.segments(0), clocks, Asynchronous())
    server.stale_rate = find_stale_rate(stale_rate)
    method, rates = optim.SGD(model.parameters(), RATE, momentum=0.9), cosine(RATE, STEPS)
    past = [server.weights.copy()]

    batches = (b for epoch in range(EPOCHS) for b in minibatches(train, BATCH, seed=seed, epoch=epoch))
    for step, batch in enumerate(batches):
        method.lr = rates(step)
        for worker, share in enumerate(shares(len(batch), workers)):
            version = max(server.version - staleness, 0)
            layout.load(past[version - server.version - 1])
            method.zero_grad()
            with np.errstate(over="ignore", invalid="ignore"):
                Serial().step(model, batch[share], ops.cross_entropy)
                grads = [p.grad for p in layout.parameters]
                reached = [g is not None for g in grads]
                push = Push(worker, step, version, len(batch[share]), reached, layout.pack(grads))
                server.take(push)
                server.apply(server.pushes, method)
            past = [*past[-staleness:], server.weights.copy()]
    layout.load(server.weights)
    return accuracy(model, test)
