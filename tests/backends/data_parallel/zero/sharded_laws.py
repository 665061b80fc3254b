"""Laws of backends/data_parallel/zero/sharded.py and gathered_weights.py: what is sharded trains like
serial; each law takes the strategy under test.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from backends.comm import run_ranks
from backends.data_parallel.zero.sharded import Sharded
from backends.laws import trains_like_serial
from minigrad import nn, ops, optim
from minigrad.strategy import Strategy
from tests.nets import Reusing, grouped
from tests.nets import small_images_of as batches_of

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
    "groups": lambda ps: grouped(ps).clipped(0.1),
    "amsgrad": lambda ps: optim.Adam(ps, 0.05, amsgrad=True, maximize=True),
}


def law(
    strategy: Callable[..., Strategy],
    ranks: int,
    sizes: list[int],
    build: Callable[[np.random.Generator], nn.Module] = Reusing,
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


class Branches(nn.Module):
    """Rank 1 calls its layers in another order, or leaves one out, in every step after the first ``same``."""

    def __init__(self, rank, other, same=0, width=5):
        rng = np.random.default_rng(0)
        self.first, self.last = nn.Linear(6, 5, rng=rng), nn.Linear(5, 3, rng=rng)
        self.one, self.two = nn.Linear(5, 5, rng=rng), nn.Linear(5, width, rng=rng)
        self.rank, self.other, self.same = rank, other, same

    def forward(self, x):
        self.same -= 1
        layers = [self.one, self.two]
        if self.rank == 1 and self.same < 0:
            layers = layers[::-1] if self.other else layers[:1]
        h = ops.tanh(self.first(x.reshape(-1, 6)))
        for layer in layers:
            h = ops.tanh(layer(h))[:, :5]
        return self.last(h)


def layers_in_another_order_are_named(ranks, overlap, other, same=0, width=5):
    """Before any weight is updated."""

    def work(comm):
        backend = Sharded(comm, stage=3, overlap=overlap)
        model = backend.place(Branches(comm.rank, other, same, width))
        optimizer = optim.SGD(model.parameters(), 0.1)
        for batch in batches_of([6] * (same + 1)):
            optimizer.zero_grad()
            backend.step(model, batch, ops.cross_entropy)
            backend.update(model, optimizer)

    try:
        run_ranks(ranks, work)
    except RuntimeError as error:
        assert "must be called on all ranks in the same order" in str(error), error
    else:
        raise AssertionError("another order was not named")


def formula(stage, n, k):
    """Bytes per parameter on each of n ranks, with k bytes of optimizer state; stage 0 is replicated."""
    return [8 + k, 8 + k / n, 4 + (4 + k) / n, (8 + k) / n][stage]
