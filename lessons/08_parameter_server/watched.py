"""Training with parameter servers on a virtual clock, and a record of what happens in it."""

import itertools
from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from minigrad_course.machines.virtual_cluster import VirtualCluster

from backends.comm.collectives import barrier
from backends.comm.collectives.link import Link
from backends.comm.communicator import Wrapper
from backends.data_parallel import ParameterServer
from minigrad import mnist, nn, ops, optim
from minigrad.data import minibatches

digits = mnist.load("mnist5k")
BATCH = 32  # samples of a gradient


def network():
    rng = np.random.default_rng(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 128, rng=rng), nn.ReLU(), nn.Linear(128, 10, rng=rng))


def sgd(parameters):
    return optim.SGD(parameters, 0.05)


def batches(size, steps):
    """``steps`` batches, over as many epochs as it takes."""
    epochs = (minibatches(digits.train, size, seed=0, epoch=epoch) for epoch in itertools.count())
    return itertools.islice(itertools.chain.from_iterable(epochs), steps)


class Applied(NamedTuple):
    """A gradient that the first server applied, as part of which update."""

    time: float
    worker: int
    staleness: int
    update: int


@dataclass
class Run:
    """The record of a training run; times in seconds of the virtual clock."""

    cluster: VirtualCluster
    applied: list[Applied] = field(default_factory=list)
    computed: list[tuple[int, float, float]] = field(default_factory=list)  # worker, start, stop
    weights: list[tuple[float, np.ndarray]] = field(default_factory=list)  # the first server's, and when
    mixed: list[bool] = field(default_factory=list)  # of each gradient: its parameters of several versions?
    states: list[dict] = field(default_factory=list)  # what each rank ends with
    counts: Counter = field(default_factory=Counter)  # the library's own count of staleness


class Late(Wrapper):
    """A rank whose pushes leave late, each by a random time of at most ``seconds``."""

    def __init__(self, comm, seconds):
        super().__init__(comm)
        self.seconds, self.draw = seconds, np.random.default_rng(comm.rank)

    def start_send(self, x, to, tag=0):
        self.comm.compute(self.seconds * self.draw.random())
        return self.comm.start_send(x, to, tag)


INSTANT = Link(0.0)


def served(seconds, servers=1, link=INSTANT, late=0.0, batch=BATCH, method=sgd, keep=0, **settings):
    """Train; a gradient of worker w's k-th step takes ``seconds[w, k]``. ``settings`` are the strategy's.

    With ``keep`` the record has the weights after every ``keep``-th update.
    """
    workers, steps = seconds.shape
    run = Run(VirtualCluster(workers + servers, link))

    def work(comm):
        comm = Late(comm, late) if late else comm
        backend = ParameterServer(comm, servers=servers, **settings)
        model = backend.place(network())
        optimizer = method(model.parameters())
        if comm.rank == workers:
            watch(comm, backend.server)

        def loss(out, y):
            start = comm.time()
            comm.compute(seconds[comm.rank, backend.steps])
            run.computed.append((comm.rank, start, comm.time()))
            run.mixed.append(len(set(backend.versions)) > 1)
            return ops.cross_entropy(out, y)

        barrier(comm)  # all begin together
        for samples in batches(batch * workers, steps):  # of which each worker takes its share
            optimizer.zero_grad()
            backend.step(model, samples, loss)
            backend.update(model, optimizer)
        backend.finalize(model)
        run.counts = backend.staleness_counts
        return model.state_dict()

    def watch(comm, server):
        apply = server.apply

        def watched(pushes, optimizer):
            now, version = comm.time(), server.version
            run.applied += [Applied(now, p.worker, version - p.version, version) for p in pushes]
            apply(pushes, optimizer)
            if keep and server.version % keep == 0:
                run.weights.append((now, server.weights.copy()))

        server.apply = watched

    run.states = run.cluster.run(work)
    return run
