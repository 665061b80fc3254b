"""Laws of minigrad/weighted_mean.py: losses that are divided by something else than samples; they
take the strategy and the loss.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from backends.comm import run_ranks
from backends.laws import MakeStrategy
from minigrad import Tape, Tensor, nn
from minigrad.data import Batch
from minigrad.testing import DEVICE


def model_of(seed: int) -> nn.Module:
    rng = np.random.default_rng(seed)
    layers = nn.Linear(4, 5, rng=rng), nn.Tanh(), nn.Linear(5, 3, rng=rng)
    return nn.Sequential(*layers).to(dtype=np.float64, device=DEVICE)


def batch_of(n: int) -> Batch:
    """Labels 2, 1 and then 0, so that a share at the end may have no other."""
    x = np.random.default_rng(n).normal(size=(n, 4))
    return Batch(x, np.array([2, 1, *[0] * n])[:n]).to(DEVICE)


def gradients_are_of_the_whole_batch(
    strategy: MakeStrategy, ranks: int, loss: Callable[[Any, Any], Tensor], sizes: Sequence[int]
) -> None:
    """Loss and gradients on each rank are those of one tape for the whole batch, without a backend."""
    for n in sizes:
        batch, alone = batch_of(n), model_of(0)
        with Tape() as tape:
            expected = loss(alone(Tensor(batch.x)), batch.y)
        tape.backward(expected)

        def work(comm, batch=batch, alone=alone, expected=expected):
            backend = strategy(comm)
            model = backend.place(model_of(comm.rank))
            value = backend.step(model, batch, loss)
            np.testing.assert_allclose(value, expected.item(), rtol=1e-12, err_msg="the loss")
            gradients = backend.state.full_gradients(model)
            for name, p in alone.named_parameters().items():
                g = Tensor(p.grad).numpy()
                difference = np.abs(gradients[name] - g).max()
                assert difference <= 1e-12 * np.abs(g).max(), f"the gradient of {name} is {difference} off"

        run_ranks(ranks, work)


def nothing_counts(strategy: MakeStrategy, ranks: int, loss: Callable[[Any, Any], Tensor]) -> None:
    """Where no label counts, the loss is NaN, as that of no samples, and every gradient is 0."""
    batch = batch_of(5)
    batch = Batch(batch.x, batch.y * 0)

    def work(comm):
        backend = strategy(comm)
        model = backend.place(model_of(0))
        assert np.isnan(backend.step(model, batch, loss)), "the loss is a number"
        for name, g in backend.state.full_gradients(model).items():
            assert g is not None and not g.any(), f"the gradient of {name} is {g}"

    run_ranks(ranks, work)


def a_part_is_refused(strategy: MakeStrategy, loss: Callable[[Any, Any], Tensor], words: str) -> None:
    """A plain function that is no mean over samples raises on every rank that has a part of the batch."""

    def work(comm):
        backend = strategy(comm)
        model = backend.place(model_of(0))
        try:
            backend.step(model, batch_of(4), loss)
        except ValueError as error:
            assert words in str(error) and "give the backend an nn.CrossEntropyLoss" in str(error), error
        else:
            raise AssertionError("a part of the batch was not refused")

    run_ranks(2, work)
