"""Laws of backends/model_parallel/parameter_types.py: no layer of the library leaves out a sum over ranks, or
sums twice, whatever is split; with a mistake in one of them the types name the layer and the sum.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from backends.comm import run_ranks
from backends.comm.communicator import Communicator
from backends.comm.typed_tape import TypedTape
from backends.model_parallel import ModelParallel
from backends.model_parallel.parameter_types import parameter_types
from minigrad import nn, ops
from minigrad.data import Batch
from minigrad.forward_pass import ForwardPass
from minigrad.module import Module
from minigrad.recompute import recomputed
from minigrad.tensor import Tensor
from tests.backends.model_parallel.transformer_laws import FORMS, TOKEN_LOSS, Net

Build = Callable[[np.random.Generator], Module]


def sums_are_right(
    build: Build, ranks: int, plan: Any, batch: Batch, loss_fn: Any = ops.cross_entropy, **settings: Any
) -> None:
    """Type a forward pass in training mode; raises GradientTypeError where a sum is missing, or doubled."""

    def work(comm: Communicator) -> None:
        backend = ModelParallel(comm, plan, **settings)
        model = backend.place(build(np.random.default_rng(0)))
        loss_of_part = backend.loss_for(model, loss_fn)
        tape = TypedTape(parameter_types(model), model.named_parameters())
        with ForwardPass(0, np.arange(len(batch), dtype=np.uint64)), tape:
            loss = loss_of_part(model(Tensor(batch.x)), batch.y)
        tape.check_loss(loss)
        leaves = {id(entry) for entry in tape.entries if isinstance(entry, Tensor)}
        trained = [p for p in model.parameters() if p.requires_grad and id(p) in leaves]
        assert trained, "nothing was typed"

    run_ranks(ranks, work)


def transformer(form: str, ranks: int = 2, *, vocabulary: bool = False, net: Net = Net()) -> None:  # noqa: B008
    """A transformer split by heads, tokens and symbols."""
    (batch,) = net.batches(3)
    sums_are_right(net.build, ranks, net.plan(vocabulary=vocabulary), batch, TOKEN_LOSS, **FORMS[form])


def perceptron(rng: np.random.Generator) -> Module:
    layers: list[Module] = [nn.Linear(4, 6, rng=rng), nn.Tanh(), nn.Linear(6, 7, rng=rng)]
    layers += [nn.Dropout(0.3, rng=rng), nn.Linear(7, 5, rng=rng), nn.Tanh()]
    return nn.Sequential(*layers, nn.Linear(5, 3, rng=rng))


def images(rng: np.random.Generator) -> nn.Sequential:
    layers: list[Module] = [nn.Conv2d(2, 4, 3, padding=1, rng=rng), nn.BatchNorm(4), nn.Tanh()]
    layers += [nn.Conv2d(4, 4, 3, padding=1, rng=rng), nn.MaxPool2d(2), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(16, 6, rng=rng), nn.Tanh(), nn.Linear(6, 3, rng=rng))


def some(*shape: int) -> Batch:
    rng = np.random.default_rng(1)
    return Batch(rng.normal(size=(3, *shape)), rng.integers(0, 3, 3))


def columns_and_rows() -> None:
    sums_are_right(perceptron, 2, {"2": "column", "4": "row"}, some(4))


def filters_and_channels() -> None:
    sums_are_right(images, 2, {"3": "filters", "6": "row", "8": "classes"}, some(2, 4, 4))
    sums_are_right(images, 2, {"0": "filters", "3": "channels", "6": "column", "8": "row"}, some(2, 4, 4))


def gathered_layers() -> None:
    sums_are_right(perceptron, 2, {"2": "gathered", "4": "column"}, some(4))


def classes() -> None:
    sums_are_right(perceptron, 2, {"6": "classes"}, some(4))
    weighted = nn.CrossEntropyLoss(weight=np.array([1.0, 2.0, 3.0]))
    sums_are_right(perceptron, 2, {"6": "classes"}, some(4), weighted)


def segments() -> None:
    """Layers that run again in backward."""
    plan = {"0": "filters", "3": "channels", "6": "column", "8": "classes"}
    sums_are_right(lambda rng: recomputed(images(rng), [0, 4, 8]), 2, plan, some(2, 4, 4))


def heads() -> None:
    transformer("heads")
    transformer("heads", vocabulary=True)


def tokens() -> None:
    transformer("tokens")
    transformer("tokens", vocabulary=True)


def tokens_gathered_again() -> None:
    transformer("gathered again", vocabulary=True)
