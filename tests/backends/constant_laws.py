"""Laws of backends/laws.py and backends/data_parallel/step_summary.py: constants among a net's arrays.

A mask of minus infinity, one of booleans, or one huge number neither hides a wrong training nor makes a right
one look wrong, and no strategy changes them.
"""

from typing import Any

import numpy as np

from backends.comm import run_ranks
from backends.data_parallel import DataParallel
from backends.laws import Differences, differences_from_serial
from minigrad import nn, ops, optim
from minigrad.data import Batch
from minigrad.train import check_strategy

LEAST = np.finfo(np.float32).min
CONSTANTS = {
    "infinite": np.triu(np.full((4, 4), -np.inf), 1),
    "least": np.triu(np.full((4, 4), LEAST), 1),
    "no binary fraction": np.full((4, 4), 0.4822),
    "booleans": np.tril(np.ones((4, 4), bool)),
}


class Masked(nn.Module):
    """The mean of the rows of a softmax of x + mask."""

    mask: np.ndarray

    def __init__(self, mask):
        self.register_buffer("mask", mask.copy())

    def forward(self, x):
        mask = np.where(self.mask, 0, -np.inf) if self.mask.dtype == bool else self.mask.copy()
        return ops.softmax(x[:, None] + mask.astype(x.dtype)).mean(axis=1)


class ShiftedMeans(DataParallel):
    """Adds half a unit to the running mean of batch-norm in each step."""

    def finish(self, model: Any, loss):
        loss = super().finish(model, loss)
        model[1].running_mean += 0.5
        return loss


class HalvedWeight(DataParallel):
    """Halves a weight after each update."""

    def update(self, model: Any, optimizer):
        super().update(model, optimizer)
        model[2].weight.data[...] *= 0.5


def batches_of(*sizes):
    rng = np.random.default_rng(0)
    return [Batch(rng.normal(size=(n, 4)), rng.integers(0, 2, n)) for n in sizes]


def differences(strategy, first, sizes, ranks=2) -> Differences:
    """Of a net with the module ``first()``, a batch-norm and a linear layer, after batches of these sizes."""

    def build(rng):
        return nn.Sequential(first(), nn.BatchNorm(4), nn.Linear(4, 2, rng=rng))

    def work(comm):
        make = lambda comm: strategy(comm, batch_norm="synchronized")  # noqa: E731
        return differences_from_serial(make, comm, build, ops.cross_entropy, batches_of(*sizes))

    return run_ranks(ranks, work)[0]


class Huge(nn.Module):
    """x, and a frozen number of 1e15."""

    def __init__(self):
        self.huge = nn.Parameter(np.array([1e15]), requires_grad=False)

    def forward(self, x):
        return x


def what_is_wrong_shows_beside_a_constant(
    strategy: type[DataParallel] = ShiftedMeans, first: Any = lambda: Masked(CONSTANTS["least"])
):
    result = differences(strategy, first, [6])
    assert not result.proved, f"{strategy.__name__}: {result.conclusion()}"


def a_halved_weight_shows_beside_a_huge_number():
    what_is_wrong_shows_beside_a_constant(HalvedWeight, Huge)


def a_right_training_with_a_mask_is_proved(name="infinite"):
    result = differences(DataParallel, lambda: Masked(CONSTANTS[name]), [6, 2, 6])
    assert result.proved, f"{name}: {result.conclusion()}"


def a_constant_stays_as_it_is(
    strategy=DataParallel, name="infinite", ranks=3, sizes=(11, 1, 6), dtype="float32"
):
    """Bit for bit on every rank, also after a step with fewer samples than ranks; an average moves on."""

    def work(comm):
        backend = strategy(comm)
        check_strategy(backend)
        net = nn.Sequential(Masked(CONSTANTS[name]), nn.BatchNorm(4), nn.Linear(4, 2, rng=0)).to(dtype=dtype)
        model = backend.place(net)
        before = backend.state.full_state(model)
        optimizer = optim.SGD(model.parameters(), 0.1)
        for batch in batches_of(*sizes):
            optimizer.zero_grad()
            backend.step(model, Batch(batch.x.astype(dtype), batch.y), ops.cross_entropy)
            backend.update(model, optimizer)
        backend.finalize(model)
        return before, backend.state.full_state(model)

    for rank, (before, after) in enumerate(run_ranks(ranks, work)):
        assert after["0.mask"].tobytes() == before["0.mask"].tobytes(), f"{name} changed on rank {rank}"
        assert not np.array_equal(after["1.running_mean"], before["1.running_mean"])
