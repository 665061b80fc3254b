"""Replicated data parallelism in all its settings over real MPI: the same law as on threads."""

import pytest

LAW = """
import numpy as np
from backends.comm.shared_memory_allreduce import SharedMemoryAllreduce
from backends.data_parallel import DataParallel, ProportionalDataParallel
from backends.laws import trains_like_serial
from minigrad import nn, ops, optim
from minigrad.data import Batch


def net(rng):
    model = nn.Sequential(
        nn.Conv2d(1, 3, (2, 3), padding=1, rng=rng), nn.BatchNorm(3), nn.ReLU(), nn.Flatten(),
        nn.Linear(27, 7, rng=rng), nn.Tanh(), tied := nn.Linear(7, 7, rng=rng), nn.Tanh(), tied,
        nn.Linear(7, 3, rng=rng),
    )
    tied.bias.requires_grad = False
    return model


def plain(rng):
    model = net(rng)
    model.layers.pop(1)
    return model


rng = np.random.default_rng(0)
batches = [Batch(rng.normal(size=(n, 1, 2, 3)), rng.integers(0, 3, n)) for n in (13, 9, 2)]
window = SharedMemoryAllreduce(comm)
OPTIMIZERS = {
    "momentum": lambda p: optim.SGD(p, 0.1, momentum=0.9, weight_decay=0.01),
    "adam": lambda p: optim.Adam(p, 0.01),
    "clipped": lambda p: optim.SGD(p, 0.1, momentum=0.9).clipped(0.05),
    "lars": lambda p: optim.LARS(p, 1.0, momentum=0.9, weight_decay=0.01),
}
STRATEGIES = {
    "replicated": (DataParallel, plain),
    "window": (lambda comm: DataParallel(comm, window), plain),
    "accumulated": (lambda comm: DataParallel(comm, micro_batches=3), plain),
    "synchronized": (lambda comm: DataParallel(comm, batch_norm="synchronized"), net),
    "proportional": (lambda comm: ProportionalDataParallel(comm, every=1), plain),
}
for strategy, build in STRATEGIES.values():
    for optimizer in OPTIMIZERS.values():
        trains_like_serial(
            strategy, comm, build, ops.cross_entropy, batches, optimizer=optimizer, bound=1e-11
        )
    for every in ({"zero_every": 3, "update_every": 3}, {"zero_every": 2}):  # gradients of steps add up
        trains_like_serial(strategy, comm, build, ops.cross_entropy, batches, bound=1e-11, **every)
"""


@pytest.mark.parametrize("n", [2, 3, pytest.param(4, marks=pytest.mark.thorough)])
def test_trains_like_serial(pool, n):
    pool.run(n, LAW)
