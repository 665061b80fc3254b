"""The laws a parallel strategy obeys; each takes the thing under test, so a student's faces the same ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from minigrad import optim
from minigrad.backend import Backend, Loss, Serial
from minigrad.data import Batch
from minigrad.module import Module

from .comm.collectives import gather
from .comm.protocol import Comm

Strategy = Callable[[Comm], Backend]
Build = Callable[[np.random.Generator], Module]


class Difference(NamedTuple):
    """How far one parameter was from the serial run: the largest over elements, ranks and steps."""

    name: str
    shape: tuple[int, ...]
    absolute: float
    relative: float
    worst_rank: int


def bound_for(dtype: Any) -> float:
    """The relative difference that another order of summation may make: 4,500 units of roundoff.

    1e-12 in float64. A strategy that is wrong is off by parts of the gradient itself, 1e-3 and more.
    """
    return float(4500 * np.finfo(dtype).eps)


def differences_from_serial(
    strategy: Strategy,
    comm: Comm,
    build: Build,
    loss_fn: Loss,
    batches: list[Batch],
    *,
    dtype: Any = np.float64,
    seed: int = 0,
    lr: float = 0.1,
    momentum: float = 0.9,
) -> list[Difference]:
    """Train on ``batches`` twice, by ``strategy`` and serially, and compare on every rank after each step.

    Compared are every parameter's gradient and the loss before each update (relative to the largest
    element of the serial gradient) and the parameters after it. Every rank calls this; rank 0 gets the
    differences, by parameter and with the rank where they were largest, the others an empty list.
    """
    serial, reference = Serial(), build(np.random.default_rng(seed)).to(dtype=dtype)
    backend = strategy(comm)
    # A rank's own parameters must not matter: those of rank 0 are trained everywhere.
    model = backend.place(build(np.random.default_rng(seed + comm.rank)).to(dtype=dtype))
    optimizers = [optim.SGD(m.parameters(), lr, momentum=momentum) for m in (reference, model)]
    shapes = {name: p.shape for name, p in reference.named_parameters().items()} | {"loss": ()}
    worst = np.zeros((len(shapes), 2))
    for batch in batches:
        for optimizer in optimizers:
            optimizer.zero_grad()
        losses = serial.step(reference, batch, loss_fn), backend.step(model, batch, loss_fn)
        wanted = {**serial.full_gradients(reference), "loss": np.array(losses[0])}
        found = {**backend.full_gradients(model), "loss": np.array(losses[1])}
        worst = np.maximum(worst, [distance(wanted[name], found.get(name)) for name in shapes])
        for optimizer in optimizers:
            optimizer.step()
        wanted, found = serial.full_parameters(reference), backend.full_parameters(model)
        after = [distance(wanted[n], found.get(n)) if n in wanted else (0.0, 0.0) for n in shapes]
        worst = np.maximum(worst, after)
    by_rank = np.array(gather(comm, worst))
    if comm.rank != 0:
        return []
    return [
        Difference(name, shape, float(r[:, 0].max()), float(r[:, 1].max()), int(r[:, 1].argmax()))
        for (name, shape), r in zip(shapes.items(), by_rank.swapaxes(0, 1), strict=True)
    ]


def distance(wanted: np.ndarray | None, found: np.ndarray | None) -> tuple[float, float]:
    """The largest absolute difference, and the same relative to the largest element wanted."""
    if wanted is None and found is None:
        return 0.0, 0.0
    if wanted is None or found is None or wanted.shape != found.shape:
        return np.inf, np.inf
    absolute = float(np.abs(wanted - found).max(initial=0.0))
    if not np.isfinite(absolute):
        return np.inf, np.inf
    scale = float(np.abs(wanted).max(initial=0.0))
    return absolute, absolute / scale if scale else (np.inf if absolute else 0.0)


def trains_like_serial(
    strategy: Strategy,
    comm: Comm,
    build: Build,
    loss_fn: Loss,
    batches: list[Batch],
    *,
    dtype: Any = np.float64,
    **settings: Any,
) -> None:
    """Assert that no gradient, loss or parameter, on any rank, after any step, exceeds the bound."""
    found = differences_from_serial(strategy, comm, build, loss_fn, batches, dtype=dtype, **settings)
    bound = bound_for(dtype)
    wrong = [d for d in found if not d.relative <= bound]
    assert not wrong, "\n".join(
        f"{d.name} {d.shape} differs by {d.relative:.2e} of its largest element on rank {d.worst_rank}, "
        f"allowed {bound:.0e}"
        for d in wrong
    )
