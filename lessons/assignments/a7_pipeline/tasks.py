"""What assignment a7 is held to: valid, within its memory, done at the exact time, and trains like serial."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import index
from types import SimpleNamespace
from typing import Any

import hypothesis.strategies as st
import numpy as np
from minigrad_course.grading import Task, Wrong
from minigrad_course.grading.worker.messages import raised_inside

from backends.comm import Communicator
from backends.laws import trains_like_serial
from backends.pipeline import (
    Backward,
    Costs,
    Forward,
    Pipeline,
    Schedule,
    Simulation,
    Timetable,
    Weight,
    check_timetable,
    simulate,
)
from minigrad import nn, ops, optim
from minigrad.data import Batch

Instructions = tuple[Forward | Backward | Weight, ...]


@dataclass(frozen=True)
class Case:
    """A pipeline of as many stages as ranks; a stage takes so long for a micro-batch, forward and back."""

    ranks: int
    micros: int
    forward: int = 1
    backward: int = 1
    samples: int = 4

    def __str__(self) -> str:
        text = f"{counted(self.ranks, 'stage')}, {counted(self.micros, 'micro-batch')}"
        return f"{text}, F = {self.forward}, B = {self.backward}"


@dataclass(frozen=True)
class Split(Case):
    """Here the backward is split into two halves, B and W, and each takes as long as a forward: 1."""

    def __str__(self) -> str:
        return f"{counted(self.ranks, 'stage')}, {counted(self.micros, 'micro-batch')}, F = B = W = 1"


def counted(n: int, noun: str) -> str:
    plural = "es" if noun.endswith("ch") else "s"
    return f"{n} {noun}{'' if n == 1 else plural}"


RANKS, TIMES, SAMPLES = st.integers(1, 5), st.integers(1, 3), st.integers(1, 9)
CASES = st.builds(Case, RANKS, st.integers(1, 9), TIMES, TIMES, SAMPLES)
SPLIT = st.builds(Split, RANKS, st.integers(1, 9), samples=SAMPLES)
FULL = st.builds(lambda ranks, more: Split(ranks, ranks + more), RANKS, st.integers(0, 6))
LONG = st.builds(lambda ranks, more: Split(ranks, 2 * ranks - 1 + more), RANKS, st.integers(0, 5))


# Reading and running what was written


def written(submission: Any, name: str, case: Case, *, weights: bool) -> Timetable:
    """The submission's timetable; Wrong where something else than instructions came."""
    order = getattr(submission, name)
    lists = [listed(order, f"{name}({stage}, {case.ranks}, {case.micros})", stage, case, weights=weights)
             for stage in range(case.ranks)]  # fmt: skip

    def recorded(stage: int, stages: int, micros: int, chunks: int) -> Iterator[Any]:
        return iter(lists[stage])

    return Schedule(recorded, name).of(case.ranks, case.micros)


def listed(order: Callable[..., Any], call: str, stage: int, case: Case, *, weights: bool) -> Instructions:
    """One stage's instructions, as our own objects."""
    most = 9 * case.micros  # thrice what there is to do: the validator says what is done twice
    try:
        coming = iter(order(stage, case.ranks, case.micros))
    except TypeError as error:
        if raised_inside(error):
            raise
        raise Wrong(f"{call} gives no instructions: {error}; yield them, or return a list") from None
    result = list(islice(coming, most + 1))
    if len(result) > most:
        raise Wrong(f"{call} goes on after {most} instructions, and there is not more to do; let it end")
    return tuple(checked(i, call, weights=weights) for i in result)


def checked(i: Any, call: str, *, weights: bool) -> Forward | Backward | Weight:
    if type(i) not in (Forward, Backward, Weight):
        raise Wrong(f"{call} gives {i!r}, which is none of Forward(i), Backward(i), Weight((i, ...))")
    if isinstance(i, Weight) and not weights:
        raise Wrong(f"{call} gives {i}; in this task a Backward computes the weights' gradients too")
    try:
        if isinstance(i, Weight):
            return Weight(tuple(index(micro) for micro in i.micros), index(i.chunk))
        return type(i)(index(i.micro), index(i.chunk))
    except TypeError:
        raise Wrong(
            f"{call} gives {i}: micro-batches are whole numbers, for Weight a tuple of them"
        ) from None


def valid(table: Timetable, most: Sequence[int], costs: Costs) -> Simulation:
    """The timetable's run, if the validator finds nothing wrong and no stage holds more than its most."""
    try:
        check_timetable(table, most)
    except ValueError as error:
        text = re.sub(r"^schedule \S+ of \d+ ranks:? ", "", str(error))
        raise Wrong(text.replace("rank ", "stage ")) from None
    return simulate(table, costs)


def check_makespan(run: Simulation, most: int, *, exact: bool = False) -> None:
    if run.makespan > most or (exact and run.makespan != most):
        late = max(range(run.table.ranks), key=lambda rank: longest_wait(run, rank)[0])
        wait, before = longest_wait(run, late)
        where = f"; stage {late} waits {wait} before {before}" if wait else ""
        raise Wrong(
            f"it is valid, but takes {run.makespan}, it should be {'' if exact else 'at most '}{most}{where}"
        )


def longest_wait(run: Simulation, rank: int) -> tuple[Any, Any]:
    """The longest pause between two instructions of a stage, and what comes after it."""
    mine = run.of(rank)
    waits = [(b.start - a.stop, b.instruction) for a, b in zip(mine, mine[1:], strict=False)]
    return max(waits, key=lambda wait: wait[0], default=(0, None))


def check_training(table: Timetable, case: Case, comm: Communicator) -> None:
    """The engine trains by the timetable, a rank for each stage; every gradient is that of a serial run."""
    rng = np.random.default_rng(case.samples)
    batch = Batch(rng.normal(size=(case.samples, 3)), rng.integers(0, 3, case.samples))
    trains_like_serial(
        lambda comm: Pipeline(comm, table.schedule, micro_batches=case.micros),
        comm,
        lambda rng: nn.Sequential(*(nn.Linear(3, 3, rng=rng) for _ in range(case.ranks + 1))),
        ops.cross_entropy,
        [batch],
        optimizer=lambda parameters: optim.SGD(parameters, 0.1),
    )


# The tasks


def check_gpipe(submission: Any, case: Case, comm: Communicator) -> None:
    table = written(submission, "gpipe", case, weights=False)
    run = valid(table, [case.micros] * case.ranks, Costs(case.forward, case.backward))
    for stage, mine in enumerate(table.instructions):
        kinds = [type(i) for i in mine]
        if Forward in kinds[kinds.index(Backward) :]:
            last = next(i for i in reversed(mine) if isinstance(i, Forward))
            raise Wrong(f"stage {stage}: {last} comes after a Backward; GPipe takes all forward first")
    check_makespan(run, (case.micros + case.ranks - 1) * (case.forward + case.backward), exact=True)
    check_training(table, case, comm)


def check_one_f_one_b(submission: Any, case: Case, comm: Communicator) -> None:
    table = written(submission, "one_f_one_b", case, weights=False)
    most = [min(case.micros, case.ranks - stage) for stage in range(case.ranks)]
    run = valid(table, most, Costs(case.forward, case.backward))
    check_makespan(run, (case.micros + case.ranks - 1) * (case.forward + case.backward), exact=True)
    check_training(table, case, comm)


def split_run(submission: Any, name: str, case: Case, most: int) -> Simulation:
    table = written(submission, name, case, weights=True)
    return valid(table, [most] * case.ranks, Costs(1, 1, 1))


def check_beats(submission: Any, case: Case, comm: Communicator) -> None:
    """Sooner done than 1F1B; on one stage there is nothing to gain."""
    run = split_run(submission, "my_schedule", case, min(case.micros, case.ranks))
    check_makespan(run, 3 * (case.micros + case.ranks - 1) - (case.ranks > 1))
    check_training(run.table, case, comm)


def check_best(submission: Any, case: Case, comm: Communicator) -> None:
    run = split_run(submission, "my_schedule", case, min(case.micros, case.ranks))
    check_makespan(run, 3 * case.micros + case.ranks - 1)


def check_zero_bubble(submission: Any, case: Case, comm: Communicator) -> None:
    run = split_run(submission, "zero_bubble", case, 2 * case.ranks - 1)
    for stage in range(case.ranks):
        wait, before = longest_wait(run, stage)
        if wait:
            raise Wrong(f"it is valid, but stage {stage} waits {wait} before {before}")


def one_after_another(stage: int, stages: int, micros: int) -> Iterator[Forward | Backward]:
    """A wrong answer to every task: valid, but one stage works at a time."""
    for micro in range(micros):
        yield Forward(micro)
        yield Backward(micro)


def task(name: str, points: int, title: str, cases: Any, check: Any, function: str = "") -> Task:
    broken = SimpleNamespace(**{function or name: one_after_another})
    return Task(name, points, title, cases, check, broken, examples=40)


TASKS = (
    task("gpipe", 15, "GPipe", CASES, check_gpipe),
    task("one_f_one_b", 25, "one forward, one backward", CASES, check_one_f_one_b),
    task("my_schedule", 20, "sooner done than 1F1B, with its memory", SPLIT, check_beats),
    task("my_schedule_best", 20, "the drain filled with weights", FULL, check_best, "my_schedule"),
    task("zero_bubble", 20, "no bubble, for twice the memory", LONG, check_zero_bubble),
)
