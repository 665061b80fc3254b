"""Laws of backends/checkpoint/training_state.py: n steps give what k steps, a checkpoint, and n - k steps
of new objects that read it give.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Container, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from backends.checkpoint import Checkpoints
from backends.checkpoint import training_state as state
from backends.comm import run_ranks
from backends.comm.collectives import barrier
from backends.comm.communicator import Communicator
from backends.laws import distances
from minigrad import nn
from minigrad.data import Batch
from minigrad.lr_schedules import ReduceLROnPlateau
from minigrad.ops import cross_entropy
from minigrad.strategy import Strategy
from minigrad.tape import current_tape
from minigrad.tensor import Parameter, Tensor
from minigrad.weighted_mean import WeightedMean
from minigrad.work import Loss
from tests.nets import Build


class Scale(nn.Module):
    """Multiplies by a parameter without axes, and adds another one."""

    def __init__(self, rng: np.random.Generator):
        self.factor, self.shift = Parameter(rng.normal(1.0, 0.1, ())), Parameter(np.array(0.0))

    def forward(self, x: Any) -> Tensor:
        return x * self.factor + self.shift


def scaled(rng: np.random.Generator) -> nn.Module:
    """A net with parameters without axes."""
    return nn.Sequential(
        nn.Linear(4, 6, rng=rng),
        Scale(rng),
        nn.Tanh(),
        nn.Linear(6, 5, rng=rng),
        Scale(rng),
        nn.Linear(5, 3, rng=rng),
    )


MakeBackend = Callable[[Communicator], Strategy]
MakeOptimizer = Callable[[Any], Any]


class Layout(NamedTuple):
    """So many ranks, the strategy of each, and what runs a program on all of them."""

    ranks: int
    backend: MakeBackend
    run: Callable[[int, Callable[[Communicator], Any]], list[Any]] = run_ranks


class Trained(NamedTuple):
    """The losses of the steps, and all arrays and facts of a training at their end."""

    losses: list[float]
    arrays: dict[str, np.ndarray]
    facts: dict[str, Any]


def training(
    layout: Layout,
    build: Build,
    optimizer: MakeOptimizer,
    batches: Sequence[Batch],
    folder: Path,
    *,
    resume: bool = False,
    same_layout: bool = True,
    drained: Container[int] = (),
    dtype: Any = np.float64,
    loss_fn: Loss = cross_entropy,
    plateaus: bool = True,
) -> list[Trained]:
    """What each rank has after ``batches``, which it then writes; first it reads, if it is to ``resume``.

    Then it builds its net from other random numbers. With ``plateaus`` the rate halves after each step but
    the first. After the steps in ``drained`` it also gathers its state, as for a checkpoint. On a virtual
    clock a forward takes 1 s, unless ``loss_fn`` is a WeightedMean.
    """

    def work(comm: Communicator) -> Trained:
        backend = layout.backend(comm)
        model = build(np.random.default_rng(comm.rank + 100 * resume)).to(dtype=dtype)
        files = Checkpoints(folder, comm)
        generation, arrays, skipped = files.newest()
        assert (generation is not None) == resume and not skipped
        if generation is not None:
            state.load_model_state(model, arrays)
        model = backend.place(model)
        trainer = optimizer(model.parameters())
        plateau = ReduceLROnPlateau(trainer, factor=0.5, patience=0) if plateaus else None
        if generation is not None:
            facts = generation.facts
            state.load_state(
                comm, backend, model, trainer, arrays, facts, same_layout=same_layout, schedule=plateau
            )
        losses = []

        def loss(out: Tensor, y: Any) -> Tensor:
            if current_tape.get() is not None:  # in training, and not where it is checked
                comm.compute(1.0)
            return loss_fn(out, y)

        for step, batch in enumerate(batches, 1):
            trainer.zero_grad()
            of_step, scale = loss_fn if isinstance(loss_fn, WeightedMean) else loss, trainer.loss_scale
            losses.append(backend.step(model, batch, of_step, loss_scale=scale))
            backend.update(model, trainer)
            if plateau is not None:
                plateau.step(1.0)
            if step in drained:
                state.gather_state(comm, backend, model, trainer, plateau)
        arrays, facts, own = state.gather_state(comm, backend, model, trainer, plateau)
        files.write(len(batches), arrays, facts, own)
        barrier(comm)  # where one rank runs at a time, nobody waits for the files of those that cannot
        files.wait()
        arrays = {name: array.copy() for name, array in (arrays | own).items()}
        backend.close()
        return Trained(losses, arrays, facts)

    return layout.run(layout.ranks, work)


def goes_on_with_the_same_bits(
    layout: Layout,
    build: Build,
    optimizer: MakeOptimizer,
    batches: Sequence[Batch],
    k: int,
    dtype: Any = np.float64,
    *,
    drained: bool = False,
) -> None:
    """Assert that a training resumed after ``k`` steps in the same layout has the undisturbed one's bits.

    On every rank: losses, parameters, running statistics, the optimizer's state and random generators. With
    ``drained`` the undisturbed one saves after ``k`` steps too, as a strategy then drains what is on its way.
    """
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        steps = {k} if drained else ()
        whole = training(layout, build, optimizer, batches, Path(one), drained=steps, dtype=dtype)
        first = training(layout, build, optimizer, batches[:k], Path(two), dtype=dtype)
        rest = training(layout, build, optimizer, batches[k:], Path(two), resume=True, dtype=dtype)
    for rank, (a, b, c) in enumerate(zip(whole, first, rest, strict=True)):
        assert a.losses == b.losses + c.losses, f"rank {rank}: losses {a.losses}, {b.losses} + {c.losses}"
        assert a.facts == c.facts, f"rank {rank}: {a.facts} is not {c.facts}"
        assert a.arrays.keys() == c.arrays.keys(), f"rank {rank}: {a.arrays.keys() ^ c.arrays.keys()}"
        for name, array in a.arrays.items():
            other = c.arrays[name]
            same = array.dtype == other.dtype and array.shape == other.shape
            assert same and array.tobytes() == other.tobytes(), f"rank {rank}: {name} differs"


def goes_on_in_another_layout(
    before: Layout,
    after: Layout,
    build: Build,
    optimizer: MakeOptimizer,
    batches: Sequence[Batch],
    k: int,
    bound: float = 1e-11,
    loss_fn: Loss = cross_entropy,
) -> None:
    """Assert that ``k`` steps in one layout and the others in another one are a serial training, to rounding.

    Differences are relative to the scale that ``distances`` gives each array.
    """
    serial = Layout(1, lambda comm: Strategy())
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        run = partial(training, build=build, optimizer=optimizer, loss_fn=loss_fn)
        whole = run(serial, batches=batches, folder=Path(one))[0]
        run(before, batches=batches[:k], folder=Path(two))
        rest = run(after, batches=batches[k:], folder=Path(two), resume=True, same_layout=False)
    for rank, resumed in enumerate(rest):
        assert resumed.facts["optimizer"] == whole.facts["optimizer"], f"rank {rank}: {resumed.facts}"
        assert resumed.arrays.keys() == whole.arrays.keys(), resumed.arrays.keys() ^ whole.arrays.keys()
        for name, (_, relative) in distances(whole.arrays, resumed.arrays).items():
            assert relative <= bound, f"rank {rank}: {name} differs by {relative:.1e}, allowed {bound:.0e}"
