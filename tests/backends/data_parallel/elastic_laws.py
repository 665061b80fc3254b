"""Laws of backends/data_parallel/elastic.py and backends/comm/recoverable_threads.py: ranks die and join
while they train; each law takes the strategy under test.

A run is drawn: which rank dies before which of its communications, and how many ranks should train in which
step. The oracles are the serial run, exact counts of samples, and ``DataParallel`` on the ranks of each step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any
from unittest.mock import patch

import numpy as np
from minigrad_course.machines.mortal_ranks import run_mortal_ranks

from backends.comm import run_ranks
from backends.comm.collectives import automatic
from backends.comm.collectives.link import Link
from backends.data_parallel import DataParallel
from minigrad import nn, ops
from minigrad.data import Batch, minibatches
from minigrad.serial import Serial
from minigrad.strategy import Strategy
from minigrad.tensor import Tensor
from minigrad.train import History, fit
from tests.backends.data_parallel.trained_apart import OPTIMIZERS, Net, Plain, close

EPOCHS, SAMPLES, SIZE = 2, 17, 5
STEPS = EPOCHS * -(-SAMPLES // SIZE)


@dataclass
class Faults:
    """``deaths`` gives the number of communications that a rank has left.

    ``goals`` gives the number of ranks that should train in each step, the last one also after it. ``seed``
    chooses the interleaving; None leaves it to the machine.
    """

    ranks: int
    deaths: Mapping[int, int] = field(default_factory=dict)
    goals: list[int] = field(default_factory=list)
    seed: int | None = 0

    def target(self, step: int) -> int:
        goals = self.goals or [self.ranks]
        return goals[min(step, len(goals) - 1)]


@dataclass
class Outcome:
    """What a rank that lived has: losses, arrays, optimizer state, and each step's team, by world number."""

    losses: list[float]
    arrays: dict[str, np.ndarray]
    optimizer: dict[str, np.ndarray]
    generators: dict[str, Any]
    teams: dict[int, tuple[int, ...]]
    deaths: dict[int, int]


@dataclass
class Run:
    """Outcomes by rank, and the samples by step, team and rank that any rank, also a dead one, computed."""

    outcomes: dict[int, Outcome]
    samples: dict[tuple[int, tuple[int, ...], int], list[int]]


class Numbered(nn.Module):
    """``net`` on samples whose first column is their number, which ``note`` is told."""

    def __init__(self, net: nn.Module, note: Callable[[np.ndarray], object]):
        self.net, self.note = net, note

    def forward(self, x: Tensor) -> Tensor:
        self.note(x.data[:, 0].astype(int))
        return self.net(Tensor(x.data[:, 1:]))


class Random(Net):
    """Running statistics and two random generators."""

    def __init__(self, rng):
        super().__init__(rng)
        self.drop = nn.Sequential(nn.Dropout(0.3, rng=np.random.default_rng(7)), nn.Dropout(0.2, rng=rng))

    def forward(self, x):
        return self.drop(super().forward(x))


def samples() -> Batch:
    rng = np.random.default_rng(0)
    return Batch(
        np.column_stack([np.arange(SAMPLES), rng.normal(size=(SAMPLES, 6))]), rng.integers(0, 3, SAMPLES)
    )


def batches() -> list[Batch]:
    """The batches that ``fit`` takes."""
    return [batch for epoch in range(EPOCHS) for batch in minibatches(samples(), SIZE, seed=0, epoch=epoch)]


def built(
    net: Callable[..., nn.Module], note: Callable[[np.ndarray], object] = lambda ids: None
) -> nn.Module:
    return Numbered(net(np.random.default_rng(1)), note).to(dtype=np.float64)


def state_of(model: nn.Module, optimizer: Any) -> dict[str, np.ndarray]:
    """The optimizer's state by key and the parameter's name."""
    keys = {key for state in optimizer.state for key in state}
    values = {key: Strategy().state.optimizer_values(model, optimizer, key) for key in keys}
    return {f"{k} {n}": v for k, of_key in values.items() for n, v in of_key.items() if v is not None}


def generators_of(model: nn.Module) -> dict[str, Any]:
    return {
        f"{name}.{attribute}": value.bit_generator
        for name, module in model.named_modules()
        for attribute, value in vars(module).items()
        if isinstance(value, np.random.Generator)
    }


def elastic_run(strategy: Any, faults: Faults, net: Any = Plain, optimizer: str = "momentum") -> Run:
    """Train with ``fit``; raises AssertionError unless all ranks without a death end."""
    run = Run({}, {})

    def work(comm: Any) -> None:
        def note(ids: np.ndarray) -> None:
            key = backend.steps, tuple(backend.team.members), comm.rank
            run.samples[key] = ids.tolist()  # a repeated attempt of the same team replaces it

        backend = strategy(comm, target=faults.target)
        model = backend.place(built(net, note))
        method = OPTIMIZERS[optimizer](model.parameters())
        teams: dict[int, tuple[int, ...]] = {}
        history = fit(
            model,
            method,
            ops.cross_entropy,
            samples(),
            backend=backend,
            epochs=EPOCHS,
            batch_size=SIZE,
            on_step=lambda step, loss: teams.update({step: tuple(backend.team.members)}),
        )
        states = {name: rng.state for name, rng in generators_of(model).items()}
        run.outcomes[comm.rank] = Outcome(
            history.losses, model.state_dict(), state_of(model, method), states, teams, backend.deaths
        )

    run_mortal_ranks(faults.ranks, work, faults.deaths, seed=faults.seed)
    missing = set(range(faults.ranks)) - set(run.outcomes)
    assert missing <= set(faults.deaths), f"ranks {sorted(missing)} are missing, {faults} lets only some die"
    return run


def serial_run(net: Any = Plain, optimizer: str = "momentum") -> Outcome:
    model = built(net)
    method = OPTIMIZERS[optimizer](model.parameters())
    history = fit(model, method, ops.cross_entropy, samples(), epochs=EPOCHS, batch_size=SIZE)
    return Outcome(history.losses, model.state_dict(), state_of(model, method), {}, {}, {})


def all_that_live_train_like_serial(
    strategy: Any, faults: Faults, net: Any = Plain, optimizer: str = "momentum", bound: float = 1e-11
) -> None:
    """Losses of all steps, parameters, statistics and the optimizer's state, on every rank that lives."""
    serial = serial_run(net, optimizer)
    for rank, outcome in elastic_run(strategy, faults, net, optimizer).outcomes.items():
        assert len(outcome.losses) == STEPS, f"rank {rank} has {len(outcome.losses)} of {STEPS} losses"
        close({"losses": np.array(outcome.losses)}, {"losses": np.array(serial.losses)}, bound)
        close(outcome.arrays, serial.arrays, bound)
        close(outcome.optimizer, serial.optimizer, bound)


def links_are_measured_by_all_that_live(strategy: Any, victim: int, left: int) -> None:
    """Where a rank dies while the ranks measure their links, some have done so to the end, and others not."""

    def with_own_links(comm: Any, target: Any) -> Any:
        return strategy(comm, automatic.AutomaticAllreduce(), target=target)

    with patch.object(automatic, "measure_ring", lambda comm: Link(1e-6, 1e9)):  # the same messages each time
        all_that_live_train_like_serial(with_own_links, Faults(3, {victim: left}, seed=left))


def every_sample_counts_once(strategy: Any, faults: Faults) -> None:
    """In each step the ranks that took it had all samples of its batch, and each one once.

    All ranks agree on who took it.
    """
    run = elastic_run(strategy, faults)
    for step, batch in enumerate(batches()):
        teams = {outcome.teams[step] for outcome in run.outcomes.values() if step in outcome.teams}
        assert len(teams) <= 1, f"ranks disagree on who took step {step}: {teams}"
        for team in teams:
            parts = [run.samples.get((step, team, rank), []) for rank in team]
            ids = sorted(id for part in parts for id in part)
            expected = sorted(batch.x[:, 0].astype(int).tolist())
            assert ids == expected, f"step {step} took the samples {ids}, its batch has {expected}"


def is_data_parallel_on_the_ranks_of_each_step(
    strategy: Any, faults: Faults, net: Any = Random, optimizer: str = "adam"
) -> None:
    """The bits are those of ``DataParallel`` on the ranks of the team in each step."""
    run = elastic_run(strategy, faults, net, optimizer)
    if not run.outcomes:
        return
    teams = {step: team for outcome in run.outcomes.values() for step, team in outcome.teams.items()}
    if set(teams) != set(range(STEPS)):  # those that took some step have died, nobody knows its team
        return
    arrays, values, states, losses = relay([teams[step] for step in range(STEPS)], net, optimizer)
    for rank, outcome in run.outcomes.items():
        assert outcome.losses == losses, f"rank {rank}: losses {outcome.losses}, wanted {losses}"
        for name, value in (arrays | values).items():
            np.testing.assert_array_equal((outcome.arrays | outcome.optimizer)[name], value, err_msg=name)
        if rank in teams[STEPS - 1]:
            assert outcome.generators == states[rank], f"rank {rank}: generators differ"


def relay(teams: list[tuple[int, ...]], net: Any, optimizer: str) -> Any:
    """Arrays, optimizer state, generators by rank and losses of runs on ranks that take over."""
    arrays = built(net).state_dict()
    first = {name: rng.state for name, rng in generators_of(built(net)).items()}
    states = dict.fromkeys(teams[0], first)
    values: dict[str, dict[str, np.ndarray]] = {}
    losses: list[float] = []
    every = batches()
    for team, those in groupby(range(len(teams)), lambda step: teams[step]):
        steps = list(those)
        holder = next(rank for rank in team if rank in states)
        before = {rank: states.get(rank, states[holder]) for rank in team}

        def work(comm: Any, steps=steps, team=team, before=before, arrays=arrays, values=values) -> Any:
            backend = DataParallel(comm)
            model = backend.place(built(net))
            backend.count_steps_from(steps[0])
            model.load_state_dict(arrays)
            method = OPTIMIZERS[optimizer](model.parameters())
            Strategy().state.set_optimizer_values(model, method, values)
            for name, rng in generators_of(model).items():
                rng.state = before[team[comm.rank]][name]
            out = []
            for step in steps:
                method.zero_grad()
                out.append(backend.step(model, every[step], ops.cross_entropy))
                backend.update(model, method)
            keys = {key for state in method.state for key in state}
            return (
                model.state_dict(),
                {key: Strategy().state.optimizer_values(model, method, key) for key in keys},
                {name: rng.state for name, rng in generators_of(model).items()},
                out,
            )

        ends = run_ranks(len(team), work)
        arrays, values, _, out = ends[0]
        states = {rank: end[2] for rank, end in zip(team, ends, strict=True)}
        losses += out
    flat = {f"{k} {n}": v for k, of_key in values.items() for n, v in of_key.items() if v is not None}
    return arrays, flat, states, losses


def gradients_add_up(strategy: Any, faults: Faults) -> None:
    """Where a rank dies in the second of two steps without ``zero_grad``, the first one's gradient stays."""
    totals = {}

    def work(comm: Any) -> None:
        backend = strategy(comm, target=faults.target)
        model = backend.place(built(Plain))
        method = OPTIMIZERS["sgd"](model.parameters())
        backend.begin_training(model, method, History())
        for batch in batches()[:3]:
            backend.step(model, batch, ops.cross_entropy)
        totals[comm.rank] = {n: g for n, g in backend.state.full_gradients(model).items() if g is not None}

    run_mortal_ranks(faults.ranks, work, faults.deaths, seed=faults.seed)
    serial, model = Serial(), built(Plain)
    for batch in batches()[:3]:
        serial.step(model, batch, ops.cross_entropy)
    expected = {n: p.grad for n, p in model.named_parameters().items() if p.grad is not None}
    assert totals
    for total in totals.values():
        close(total, expected, 1e-11)


def agrees(seed, left, other):
    """Ranks 1 and 2 of four die; the answers to each of six questions are the same on all that have them."""
    answers = {}

    def work(comm):
        world = comm.recoverable()
        for number in range(6):
            answer = world.agree(comm.rank + number != 5)
            answers.setdefault(number, {})[comm.rank] = answer, tuple(world.members)
            if not answer:
                world = world.shrink()

    run_mortal_ranks(4, work, {1: left, 2: other}, seed=seed)
    for number, of_ranks in answers.items():
        assert len(set(of_ranks.values())) == 1, f"answers differ in question {number}: {of_ranks}"
        assert of_ranks[3] == of_ranks[0]
