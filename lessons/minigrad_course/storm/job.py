"""The training that a storm disturbs: a tiny net, a real strategy, the real loop and the real checkpoints.

Lecture section: parallelism at scale, what fails.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from backends.checkpoint.training_checkpoints import TrainingCheckpoints
from backends.registry import MakeStrategy, find_strategy
from backends.words import counted
from minigrad import nn
from minigrad.data import Batch
from minigrad.device import to_host
from minigrad.module import Module
from minigrad.ops import cross_entropy
from minigrad.optim import Adam, Optimizer
from minigrad.own_state import generator_states
from minigrad.strategy import Strategy
from minigrad.tensor import Parameter
from minigrad.train import History, fit

from .host_disk import HostDisk
from .unreliable_cluster import UnreliableComm

FOLDER = Path("/shared/checkpoints")
SAMPLES, BATCH, EPOCHS = 18, 6, 3
STEPS = EPOCHS * SAMPLES // BATCH

STRATEGIES: Mapping[str, tuple[str, dict[str, Any]]] = {
    "replicated": ("data", {}),
    "bucketed": ("data", {"bucket_bytes": 256}),
    "sharded": ("data", {"stage": 2}),
    "pipeline": ("pipe", {"schedule": "1f1b", "micro_batches": 2}),
    "model-parallel": ("model", {"plan": {"0": "column", "3": "row"}}),
    "local-sgd": ("data", {"period": 3}),
    "compressed": ("data", {"compress": "top-k", "density": 0.3}),
}
"""The strategies that a storm draws from: axis of the registry, options. Each repeats with the same bits."""


@cache
def registered(name: str) -> MakeStrategy:
    """A strategy of the table, from the registry."""
    axis, options = STRATEGIES[name]
    return find_strategy(name, options, axis)


class RankState(NamedTuple):
    """What one rank holds after a step: bytes of arrays by name, and everything else that it remembers."""

    arrays: dict[str, bytes]
    others: dict[str, Any]


class Observer(Protocol):
    """Sees what the ranks do; it is no part of the training."""

    def on_start(self, comm: UnreliableComm, history: History, state: RankState) -> None:
        """A rank is about to train, after the steps in ``history``."""
        ...

    def on_step(self, comm: UnreliableComm, history: History, state: RankState) -> None: ...

    def on_end(self, comm: UnreliableComm, history: History, state: RankState) -> None: ...

    def on_message(self, comm: UnreliableComm, text: str) -> None:
        """Rank 0 says something to the user."""
        ...


@dataclass(frozen=True)
class Job:
    """A training that writes a checkpoint every ``every`` steps, and keeps the newest ``keep`` of them."""

    strategy: str
    ranks: int
    every: int = 2
    keep: int = 2
    find: Callable[[str], MakeStrategy] = field(default=registered, repr=False)

    def __str__(self) -> str:
        ranks = counted(self.ranks, "rank")
        return f"{self.strategy} on {ranks}, {STEPS} steps, --every {self.every} --keep {self.keep}"

    @property
    def config(self) -> dict[str, Any]:
        return {"strategy": self.strategy, "data": self.ranks, "net": "tiny"}

    def run(self, comm: UnreliableComm, disk: HostDisk, observer: Observer, *, resume: bool) -> None:
        """Train on this rank, from the newest whole checkpoint if it is to ``resume``."""
        say = partial(observer.on_message, comm) if comm.rank == 0 else lambda text: None
        backend = self.find(self.strategy)(comm)
        checkpoints = TrainingCheckpoints(
            FOLDER,
            comm,
            every=self.every,
            keep=self.keep,
            steps=STEPS,
            resume=FOLDER if resume else False,
            facts={"config": self.config},
            say=say,
            disk=disk,
        )
        model = backend.place(checkpoints.load_model(net()))
        optimizer = Adam(model.parameters(), 0.01)
        history = checkpoints.load_rest(backend, model, optimizer)
        observer.on_start(comm, history, state_of(backend, model, optimizer))

        def on_step(step: int, loss: float) -> None:
            observer.on_step(comm, history, state_of(backend, model, optimizer))
            checkpoints.write()

        fit(
            model,
            optimizer,
            cross_entropy,
            samples(),
            backend=backend,
            epochs=EPOCHS,
            batch_size=BATCH,
            schedule=lambda step: 0.02 / (1 + 0.1 * step),
            start=history,
            on_step=on_step,
            span=comm.computing,
            clock=comm.time,
        )
        checkpoints.close()
        observer.on_end(comm, history, state_of(backend, model, optimizer))
        backend.close()


def net() -> Module:
    rng = np.random.default_rng(0)
    return nn.Sequential(
        nn.Linear(4, 6, rng=rng),
        nn.Tanh(),
        nn.Dropout(0.25, rng=np.random.default_rng(1)),
        nn.Linear(6, 6, rng=rng),
        nn.Tanh(),
        nn.Linear(6, 3, rng=rng),
    )


@cache
def samples() -> Batch:
    rng = np.random.default_rng(2)
    return Batch(rng.normal(size=(SAMPLES, 4)).astype(np.float32), rng.integers(0, 3, SAMPLES))


def state_of(backend: Strategy, model: Module, optimizer: Optimizer) -> RankState:
    """All that a rank must hold to go on, as bytes and numbers that can be compared."""
    values = ((name, getattr(owner, attribute)) for name, owner, attribute in model.named_arrays())
    arrays = {name: to_host(x.data if isinstance(x, Parameter) else x).tobytes() for name, x in values}
    others: dict[str, Any] = {"generators": generator_states(model)}
    numbers = {
        f"optimizer {i} {key}": value
        for i, state in enumerate(optimizer.state)
        for key, value in state.items()
    }
    numbers |= {f"own {name}": value for name, value in backend.state.own_values().items()}
    for name, value in numbers.items():
        if isinstance(value, np.ndarray):
            arrays[name] = value.tobytes()
        elif isinstance(value, list):
            arrays |= {f"{name} {i}": array.tobytes() for i, array in enumerate(value)}
        else:
            others[name] = value
    return RankState(arrays, others)
