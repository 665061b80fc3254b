"""Laws of minigrad/mean_check.py: a loss that is no mean over samples is refused; each law takes the loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from backends.comm import run_ranks
from backends.data_parallel import DataParallel
from backends.laws import MakeStrategy
from minigrad import Tensor, nn, ops, optim
from minigrad.data import Batch
from minigrad.serial import Serial

LossFn = Callable[[Tensor, Any], Tensor]


def net(rng: np.random.Generator) -> nn.Sequential:
    """With everything that draws or remembers in training mode."""
    first = nn.Linear(4, 6, rng=rng)
    return nn.Sequential(first, nn.BatchNorm(6), nn.Tanh(), nn.Dropout(0.5, rng=1), nn.Linear(6, 3, rng=rng))


def batches_of(sizes: list[int], dtype: Any = np.float32) -> list[Batch]:
    rng = np.random.default_rng(0)
    return [Batch(rng.normal(size=(n, 4)).astype(dtype), rng.integers(0, 3, n)) for n in sizes]


def a_mean_changes_no_bit(
    loss_fn: LossFn, sizes: list[int], *, dtype: Any = np.float32, scale: float = 1.0
) -> None:
    """Training by a mean over samples, in micro-batches, is that by the same loss unchecked, bit by bit."""
    states = []
    for backend in (Serial(2), Unchecked(2)):
        model = net(np.random.default_rng(0))
        model.to(dtype=dtype)
        model.parameters()[-2].data *= dtype(scale)  # the last layer's weights
        optimizer = optim.SGD(model.parameters(), 0.01)
        for batch in batches_of(sizes, dtype):
            optimizer.zero_grad()
            backend.step(model, batch, loss_fn)
            backend.update(model, optimizer)
        states.append(model.state_dict())
    for name, value in states[1].items():
        assert np.array_equal(states[0][name], value, equal_nan=True), (
            f"{name} is another one where it is checked"
        )


class Unchecked(Serial):
    """Believes that every loss is a mean."""

    def must_check(self, loss_fn: LossFn, weight: float) -> bool:
        return False


def no_mean_is_refused(
    loss_fn: LossFn, strategy: MakeStrategy = DataParallel, ranks: int = 2, sizes: tuple[int, ...] = (8,)
) -> None:
    """In the first step in which a rank has several samples, on all ranks that have."""

    def work(comm):
        backend = strategy(comm)
        model = backend.place(nn.Linear(4, 3, rng=np.random.default_rng(0)))
        for batch in batches_of(list(sizes)):
            backend.step(model, batch, loss_fn)

    try:
        run_ranks(ranks, work)
    except ValueError as error:
        says = str(error)
        assert "it is no mean over samples" in says and "WeightedMean(total, divisor)" in says, says
    else:
        raise AssertionError("a loss that is no mean over samples was trained on")


def masked(out: Tensor, y: Any) -> Tensor:
    """The mean over samples whose label is not 0, as a plain function."""
    counts = (y != 0).astype(out.dtype)
    return (ops.cross_entropy(out, y, reduction="none") * counts).sum() / counts.sum()


def a_penalty_is_refused(strategy: MakeStrategy) -> None:
    """Where ranks hold parts of the model, a loss that reads its parameters is refused, with the way out."""

    def work(comm: Any) -> None:
        backend, rng = strategy(comm), np.random.default_rng(0)
        model = backend.place(nn.Sequential(nn.Linear(4, 4, rng=rng), nn.Tanh(), nn.Linear(4, 3, rng=rng)))
        batch = batches_of([6])[0]

        def loss(out: Tensor, y: Any) -> Tensor:
            return ops.cross_entropy(out, y) + sum((p * p).sum() for p in model.parameters())

        backend.step(model, batch, loss)

    try:
        run_ranks(2, work)
    except ValueError as error:
        assert "take the optimizer's weight_decay" in str(error), error
    else:
        raise AssertionError(f"{strategy} takes the penalty of a part for that of the model")
