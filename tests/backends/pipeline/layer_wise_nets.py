"""A network of eight layers, its batches and its optimizers, which layers on consecutive ranks train."""

import numpy as np

from minigrad import nn, optim
from minigrad.data import Batch
from tests.nets import grouped


def build(rng):
    """Layers 0, 2, 5, 6 and 7 are trained."""
    return nn.Sequential(
        nn.Linear(4, 6, rng=rng),
        nn.Tanh(),
        nn.Linear(6, 5, rng=rng),
        nn.Dropout(0.3, rng=np.random.default_rng(int(rng.integers(99)))),
        nn.Sigmoid(),
        nn.Linear(5, 7, rng=rng),
        nn.BatchNorm(7),
        nn.Linear(7, 3, rng=rng),
    )


def batches_of(*shape, sizes=(5, 3, 4)):
    rng = np.random.default_rng(0)
    return [Batch(rng.normal(size=(n, *shape)), rng.integers(0, 3, n)) for n in sizes]


OPTIMIZERS = {
    "momentum": lambda p: optim.SGD(p, 0.1, momentum=0.9),
    "clipped": lambda p: optim.SGD(p, 0.5, momentum=0.9).clipped(0.05),
    "lars": lambda p: optim.LARS(p, 1.0).clipped(0.5),
    "adam": lambda p: optim.Adam(p, 0.01),
    "groups": lambda p: grouped(p).clipped(0.05),
}
