"""Networks, optimizers and batches that what is sharded trains with."""

from collections.abc import Callable
from typing import Any

import numpy as np

from backends.comm import run_ranks
from backends.laws import trains_like_serial
from minigrad import nn, ops, optim
from minigrad.data import Batch
from minigrad.strategy import Strategy
from minigrad.tensor import Parameter

STAGES = (1, 2, 3)
OPTIMIZERS = {
    "momentum": lambda ps: optim.SGD(ps, 0.1, momentum=0.9, weight_decay=0.01),
    "nesterov": lambda ps: optim.SGD(ps, 0.1, momentum=0.9, nesterov=True),
    "adam": lambda ps: optim.Adam(ps, 0.05, weight_decay=0.01),
    "adamw": lambda ps: optim.AdamW(ps, 0.05, weight_decay=0.01),
    "adagrad": lambda ps: optim.Adagrad(ps, 0.05),
    "rmsprop": lambda ps: optim.RMSprop(ps, 0.05, momentum=0.9, centered=True),
    "lars": lambda ps: optim.LARS(ps, 0.1, weight_decay=0.01, trust=0.1),
    "clipped": lambda ps: optim.SGD(ps, 0.5, momentum=0.9).clipped(0.1),
}


class Odd(nn.Module):
    """Odd sizes; a layer used twice, a weight of two modules, a frozen one, an unused layer."""

    def __init__(self, rng):
        self.scale = Parameter(rng.normal(size=5))
        self.first = nn.Linear(6, 5, rng=rng)
        self.unused = nn.Linear(5, 4, rng=rng)
        self.twice = nn.Linear(5, 5, rng=rng)
        self.mirror = nn.Linear(5, 5, rng=rng)
        self.last = nn.Linear(5, 3, rng=rng)
        self.first.weight.requires_grad = False
        self.mirror.weight = self.twice.weight

    def forward(self, x):
        h = ops.tanh(self.first(x.reshape(-1, 6)) * self.scale)
        h = ops.tanh(self.twice(ops.tanh(self.twice(h))))
        return self.last(ops.tanh(self.mirror(h)))


def convolutional(rng):
    return nn.Sequential(
        nn.Conv2d(1, 3, 3, padding=1, rng=rng),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(3, 3, rng=rng),
    )


def normalised(rng):
    return nn.Sequential(
        nn.Conv2d(1, 3, 3, padding=1, rng=rng),
        nn.BatchNorm(3),
        nn.Flatten(),
        nn.Linear(18, 3, rng=rng),
    )


class Alternating(nn.Module):
    """Uses a layer in every other forward only."""

    def __init__(self, rng):
        self.always = nn.Linear(6, 3, rng=rng)
        self.sometimes = nn.Linear(6, 3, rng=rng)
        self.turn = 0

    def forward(self, x):
        self.turn += 1
        x = x.reshape(-1, 6)
        return self.always(x) + self.sometimes(x) if self.turn % 2 else self.always(x)


def batches_of(sizes, seed=0):
    rng = np.random.default_rng(seed)
    return [Batch(rng.normal(size=(n, 1, 2, 3)), rng.integers(0, 3, n)) for n in sizes]


def law(
    strategy: Callable[..., Strategy],
    ranks: int,
    sizes: list[int],
    build: Callable[[np.random.Generator], nn.Module] = Odd,
    *,
    optimizer: str = "momentum",
    dtype: type = np.float64,
    how: dict[str, Any] | None = None,
    left_out: int = 0,
    **settings: Any,
):
    """Train on batches of ``sizes`` by ``strategy(comm, **settings)``, and hold it to the serial run."""
    batches = batches_of(sizes)

    def train(comm):
        trains_like_serial(
            lambda comm: strategy(comm, **settings),
            comm,
            build,
            ops.cross_entropy,
            batches,
            dtype=dtype,
            optimizer=OPTIMIZERS[optimizer],
            left_out=left_out,
        )

    run_ranks(ranks, train, **(how or {}))
