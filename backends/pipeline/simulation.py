"""The time and memory of a schedule: an instruction starts when its rank is free and its input is there.

Lecture section: pipelining. Lesson: 13_pipeline.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from .timetable import Backward, Forward, Instruction, Timetable, Weight

Time = float | Fraction  # whole numbers and fractions stay exact
Times = Time | Sequence[Time]  # the same for all stages, or one for each
Task = tuple[type[Instruction], int, int]
"""A kind of instruction, for one micro-batch, in a stage."""


class Event(NamedTuple):
    """An instruction that ``rank`` carries out from ``start`` to ``stop``."""

    rank: int
    instruction: Instruction
    start: Time
    stop: Time


@dataclass(frozen=True)
class Costs:
    """Seconds of one micro-batch in each stage, and of a message between two ranks.

    A ``Backward`` that is not followed by a ``Weight`` takes ``backward`` + ``weight``; a ``Weight`` takes
    ``weight`` for each of its micro-batches.
    """

    forward: Times = 1
    backward: Times = 1
    weight: Times = 0
    message: Time = 0

    def of(self, table: Timetable, rank: int, instruction: Instruction) -> Time:
        """Seconds that an instruction takes."""
        if isinstance(instruction, Weight):
            stages = [table.stage(micro, rank, instruction.chunk) for micro in instruction.micros]
            return sum(at(self.weight, stage) for stage in stages)
        stage = table.stage(instruction.micro, rank, instruction.chunk)
        if isinstance(instruction, Forward):
            return at(self.forward, stage)
        later = (instruction.micro, instruction.chunk) in table.split[rank]
        return at(self.backward, stage) + (0 if later else at(self.weight, stage))


def at(times: Times, stage: int) -> Time:
    return times[stage] if isinstance(times, Sequence) else times


@dataclass(frozen=True)
class Simulation:
    """The events of all ranks, each rank's in order."""

    table: Timetable
    events: tuple[Event, ...]

    def __repr__(self) -> str:
        return f"Simulation({self.table!r}, {len(self.events)} events, makespan={self.makespan})"

    def _repr_svg_(self) -> str:
        """The picture that a notebook shows: when each rank carries out which instruction."""
        from ..pictures.schedule_picture import picture_of_times

        return picture_of_times(self)

    @property
    def makespan(self) -> Time:
        """When the last rank is done."""
        return max((event.stop for event in self.events), default=0)

    def of(self, rank: int) -> list[Event]:
        return [event for event in self.events if event.rank == rank]

    def busy(self, rank: int) -> Time:
        return sum(event.stop - event.start for event in self.of(rank))

    def idle(self, rank: int) -> Time:
        """The rank's bubble: the part of the makespan in which it computes nothing."""
        return self.makespan - self.busy(rank)

    @property
    def bubble(self) -> Time:
        """The share of all ranks' time in which they are idle."""
        whole = self.table.ranks * self.makespan
        return (whole - sum(event.stop - event.start for event in self.events)) / whole if whole else 0.0

    def in_flight(self, rank: int, *, until_weight: bool = False) -> int:
        """The most micro-batches of which the rank holds activations at a time, each in one chunk.

        They are held from the forward to the backward, or ``until_weight`` to the weights' gradients.
        """
        return max(in_flight(self.table, rank, until_weight=until_weight), default=0)


def in_flight(table: Timetable, rank: int, *, until_weight: bool) -> Iterator[int]:
    """After each of the rank's instructions, the number of micro-batches of which it holds activations."""
    split, number = table.split[rank] if until_weight else frozenset(), 0
    for i in table.instructions[rank]:
        if isinstance(i, Forward):
            number += 1
        elif isinstance(i, Weight):
            number -= len(i.micros) if until_weight else 0
        elif (i.micro, i.chunk) not in split:  # else the weights' gradients still need its activations
            number -= 1
        yield number


class Stuck(ValueError):
    """No rank can continue: each waits for an instruction of another rank."""


def simulate(table: Timetable, costs: Costs | None = None) -> Simulation:
    """Carry out every rank's instructions in their order, each as soon as it can start.

    A micro-batch goes forward in a stage after the stage before, and back after it went forward there and
    back in the next stage; a message between ranks takes ``costs.message`` more. Raises Stuck, naming the
    instructions, where ranks wait for one another for ever.
    """
    costs = costs or Costs()
    ends: dict[Task, tuple[Time, int]] = {}  # the time at which it ended, and its rank
    asleep: dict[Task, list[int]] = {}  # the ranks that wait for it
    awake = list(range(table.ranks))
    now: list[Time] = [0] * table.ranks
    todo = [list(reversed(instructions)) for instructions in table.instructions]
    events: list[list[Event]] = [[] for _ in todo]
    while awake:
        rank = awake.pop()
        while todo[rank]:
            instruction = todo[rank][-1]
            needed = needs(table, rank, instruction)
            absent = [task for task in needed if task not in ends]
            if absent:
                asleep.setdefault(absent[0], []).append(rank)
                break
            todo[rank].pop()
            arrivals = [t + (costs.message if who != rank else 0) for t, who in map(ends.__getitem__, needed)]
            start = max([now[rank], *arrivals])
            now[rank] = start + costs.of(table, rank, instruction)
            events[rank].append(Event(rank, instruction, start, now[rank]))
            for micro in instruction.micros:
                task = type(instruction), micro, table.stage(micro, rank, instruction.chunk)
                ends[task] = now[rank], rank
                awake += asleep.pop(task, ())
    if any(todo):
        waiting = "; ".join(
            f"rank {rank} waits to do {mine[-1]}, which needs {missing(table, rank, mine[-1], ends)}"
            for rank, mine in enumerate(todo)
            if mine
        )
        raise Stuck(f"schedule {table.schedule.name} of {table.ranks} ranks never ends: {waiting}")
    return Simulation(table, tuple(event for mine in events for event in mine))


def needs(table: Timetable, rank: int, instruction: Instruction) -> list[Task]:
    """The tasks that must have ended before an instruction starts."""
    tasks: list[Task] = []
    for micro in instruction.micros:
        stage = table.stage(micro, rank, instruction.chunk)
        if isinstance(instruction, Forward):
            tasks += [(Forward, micro, stage - 1)] if stage else []
        elif isinstance(instruction, Weight):
            tasks.append((Backward, micro, stage))
        else:
            tasks.append((Forward, micro, stage))
            tasks += [(Backward, micro, stage + 1)] if stage + 1 < table.stages else []
    return tasks


def missing(table: Timetable, rank: int, instruction: Instruction, ends: Container[Task]) -> str:
    """The tasks that an instruction needs and that have not ended, in words."""
    tasks = [task for task in needs(table, rank, instruction) if task not in ends]
    return " and ".join(
        f"{kind.__name__.lower()} of micro-batch {micro} in stage {stage}" for kind, micro, stage in tasks
    )
