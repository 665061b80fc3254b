"""Laws of minigrad/placed_state.py and strategy.py: a backend owns its model, its parameters and the whole
batch. They take what makes backends.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy

import numpy as np

from backends.comm import run_ranks
from backends.comm.communicator import Communicator
from backends.data_parallel.parameter_server import ParameterServer
from backends.laws import bound_for, distances
from minigrad import ops, optim
from minigrad.data import Batch
from minigrad.module import Module
from minigrad.serial import Serial
from minigrad.strategy import Strategy
from tests import nets

Make = Callable[[Communicator], Strategy]
Build = Callable[[int], Module]
REFUSALS = {ValueError, RuntimeError}


def batch_of(seed: int, n: int = 6) -> Batch:
    rng = np.random.default_rng(seed)
    return Batch(rng.normal(size=(n, 1, 4, 4)).astype("float32"), rng.integers(0, 5, n))


def refusal_of(call: Callable[[], object]) -> str:
    """The one line with which a call is refused; an AssertionError where it is not."""
    try:
        call()
    except (ValueError, RuntimeError) as error:
        assert type(error) in REFUSALS and "\n" not in str(error), error
        return str(error)
    raise AssertionError("it was not refused")


def two_models_train_in_turns(make: Make, comm: Communicator, build: Build) -> None:
    """Each has its own backend, like those of a GAN, and every step of both is that of a serial run."""
    runs = []
    for number, width in enumerate((5, 6)):
        for backend in (make(comm), Serial(1)):
            model = backend.place(build(width).to(dtype=np.float64))
            serial = copy(backend) if isinstance(backend, Serial) else Serial(backend.micro_batches)
            runs.append((number, serial if isinstance(backend, Serial) else backend, model))
    optimizers = [optim.SGD(model.parameters(), 0.1, momentum=0.9) for _, _, model in runs]
    for step in range(3):
        for (number, backend, model), optimizer in zip(runs, optimizers, strict=True):
            optimizer.zero_grad()
            batch = batch_of(2 * step + number)
            backend.step(model, Batch(batch.x.astype(np.float64), batch.y), ops.cross_entropy)
            backend.update(model, optimizer)
    for (number, backend, model), (_, serial, alone) in zip(runs[::2], runs[1::2], strict=True):
        expected, actual = serial.state.full_parameters(alone), backend.state.full_parameters(model)
        for name, (_, relative) in distances(expected, actual).items():
            assert relative <= bound_for(np.float64), f"model {number}: {name} is {relative:.1e} off"


def a_backend_trains_one_model(make: Make, comm: Communicator, build: Build) -> None:
    """A model that was placed before another, or never, is refused by ``step`` and ``update``."""
    backend = make(comm)
    says = refusal_of(lambda: backend.step(build(5), batch_of(0), ops.cross_entropy))
    assert "has no model yet; call model = backend.place(model) first" in says, says
    first = backend.place(build(5))
    optimizer = optim.SGD(first.parameters(), 0.1)
    second = backend.place(build(6))
    for call in (
        lambda: backend.step(first, batch_of(0), ops.cross_entropy),
        lambda: backend.update(first, optimizer),
    ):
        assert "make a backend for each model" in (says := refusal_of(call)), says
    backend.step(second, batch_of(0), ops.cross_entropy)
    backend.update(second, optim.SGD(second.parameters(), 0.1))
    backend.finalize(second)


def the_optimizer_does_not_step_alone(make: Make, comm: Communicator, build: Build) -> None:
    """Until the backend is closed: then it may, also on a deep copy before."""
    backend = make(comm)
    model = backend.place(build(5))
    optimizer = optim.SGD(model.parameters(), 0.1)
    backend.step(model, batch_of(0), ops.cross_entropy)
    if model.parameters():
        says = refusal_of(optimizer.step)
        assert "call backend.update(model, optimizer) instead of optimizer.step()" in says, says
    backend.update(model, optimizer)
    backend.finalize(model)
    backend.close()
    optimizer.step()


def a_saved_model_is_whole(make: Make, comm: Communicator, build: Build) -> None:
    """``state_dict`` gives what one machine has, or refuses; the way out gives it, and loads."""
    backend = make(comm)
    model = backend.place(build(5))
    optimizer = optim.SGD(model.parameters(), 0.1)
    for step in range(2):
        optimizer.zero_grad()
        backend.step(model, batch_of(step), ops.cross_entropy)
        backend.update(model, optimizer)
    whole = build(5)
    whole.load_state_dict(backend.state.full_parameters(model) | backend.state.full_state(model))
    try:
        state = model.state_dict()
    except RuntimeError as error:
        assert "backend.state.full_parameters(model) | backend.state.full_state(model)" in str(error), error
        state = whole.state_dict()
    backend.finalize(model)
    assert state.keys() == whole.state_dict().keys(), f"rank {comm.rank} saves {sorted(state)}"
    for name, value in state.items():
        assert value.shape == whole.state_dict()[name].shape, f"{name} has shape {value.shape}"
        assert np.isfinite(value).all(), f"rank {comm.rank} saves a {name} that is not finite"


def other_batches_are_named(make: Make, comm: Communicator, build: Build, n: int = 6) -> None:
    """Where a rank passes samples of its own, every rank raises in the second step."""
    backend = make(comm)
    model = backend.place(build(5))
    optimizer = optim.SGD(model.parameters(), 0.1)

    def step(seed: int, n: int) -> None:
        optimizer.zero_grad()
        backend.step(model, batch_of(seed, n), ops.cross_entropy)
        backend.update(model, optimizer)

    step(0, 6)
    last = comm.rank == comm.size - 1
    says = refusal_of(lambda: step(1 + last, n if last else 6))
    backend.close()
    assert f"rank {comm.size - 1} was given another batch than rank 0; pass the whole batch" in says, says


def other_batches_are_seen_where_gradients_meet(
    make: Make, ranks: int, odd: int, build: Build, seed: int | None = None
) -> str:
    """Where the rank ``odd`` passes samples of its own, the rank that collects raises; returns its line."""

    def work(comm: Communicator) -> None:
        backend = make(comm)
        model = backend.place(build(5))
        optimizer = optim.SGD(model.parameters(), 0.1)
        for number in range(5):
            optimizer.zero_grad()
            backend.step(model, batch_of(number + 9 * (comm.rank == odd)), ops.cross_entropy)
            backend.update(model, optimizer)
        backend.finalize(model)

    return refusal_of(lambda: run_ranks(ranks, work, seed=seed))


def local_batches_are_trained_whole(make: Make, comm: Communicator, build: Build) -> None:
    """Averaged models that have not met train on all samples that their rank passes, as one machine alone."""
    trained = []
    for backend in (make(comm), Serial()):
        model = backend.place(build(5))
        optimizer = optim.SGD(model.parameters(), 0.1)
        for number in range(3):
            optimizer.zero_grad()
            backend.step(model, batch_of(5 * number + comm.rank, 3 + comm.rank), ops.cross_entropy)
            backend.update(model, optimizer)
        trained.append(model.state_dict())
    for name, value in trained[0].items():
        assert np.array_equal(value, trained[1][name]), f"{name} is not that of one machine"


def a_server_updates_what_its_optimizer_has(some: slice) -> None:
    """One synchronous worker is one machine, for parameters in reverse order and for ``some`` of them only.

    LARS has a rate for each parameter, by its own norms.
    """
    runs = {}

    def train(backend: Strategy, name: str) -> None:
        model = backend.place(nets.convolutional(np.random.default_rng(0)).to(dtype=np.float64))
        optimizer = optim.LARS(model.parameters()[::-1][some], 0.1).clipped(0.5)
        for batch in nets.small_images_of([6, 5]):
            model.zero_grad()
            backend.step(model, batch, ops.cross_entropy)
            backend.update(model, optimizer)
        backend.finalize(model)
        runs[name] = model.state_dict()

    train(Serial(), "serial")
    run_ranks(2, lambda comm: train(ParameterServer(comm, staleness=0), f"rank {comm.rank}"))
    for rank in (0, 1):
        for name, (_, relative) in distances(runs["serial"], runs[f"rank {rank}"]).items():
            assert relative <= 1e-12, f"{name} is {relative:.1e} off on rank {rank}"
