"""What a schedule takes, in time and memory: every instruction starts when its rank and its input are there.

Lecture section: pipelining. Lesson: 13_pipeline.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from .schedule import Backward, Forward, Instruction, Timetable, Weight

Time = float | Fraction  # whole numbers and fractions stay exact
Times = Time | Sequence[Time]  # the same for all stages, or one for each
Deed = tuple[type[Instruction], int, int]
"""What has been done: a kind of instruction, for a micro-batch, in a stage."""


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
    """What was found: every event, each rank's in order."""

    table: Timetable
    events: tuple[Event, ...]

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
        split = self.table.split[rank] if until_weight else frozenset()
        held = most = 0
        for event in self.of(rank):
            i = event.instruction
            if isinstance(i, Forward):
                held += 1
            elif isinstance(i, Weight):
                held -= len(i.micros) if until_weight else 0
            elif (i.micro, i.chunk) not in split:
                held -= 1
            most = max(most, held)
        return most


class Stuck(ValueError):
    """No rank can go on: each waits for what another one would have to do first."""


def simulate(table: Timetable, costs: Costs | None = None) -> Simulation:
    """Carry out every rank's instructions in their order, each as soon as it can start.

    A micro-batch goes forward in a stage after the stage before, and back after it went forward there and
    back in the stage behind; what crosses ranks takes ``costs.message`` more. Raises Stuck where ranks wait
    for one another for ever, naming the instructions.
    """
    costs = costs or Costs()
    done: dict[Deed, tuple[Time, int]] = {}  # when, and on which rank
    asleep: dict[Deed, list[int]] = {}  # the ranks that wait for it
    awake = list(range(table.ranks))
    now: list[Time] = [0] * table.ranks
    left = [list(reversed(instructions)) for instructions in table.instructions]
    events: list[list[Event]] = [[] for _ in left]
    while awake:
        rank = awake.pop()
        while left[rank]:
            instruction = left[rank][-1]
            needed = needs(table, rank, instruction)
            absent = [deed for deed in needed if deed not in done]
            if absent:
                asleep.setdefault(absent[0], []).append(rank)
                break
            left[rank].pop()
            arrivals = [t + (costs.message if who != rank else 0) for t, who in map(done.__getitem__, needed)]
            start = max([now[rank], *arrivals])
            now[rank] = start + costs.of(table, rank, instruction)
            events[rank].append(Event(rank, instruction, start, now[rank]))
            for micro in micros_of(instruction):
                deed = type(instruction), micro, table.stage(micro, rank, instruction.chunk)
                done[deed] = now[rank], rank
                awake += asleep.pop(deed, ())
    if any(left):
        waiting = "; ".join(
            f"rank {rank} waits to do {mine[-1]}, which needs {missing(table, rank, mine[-1], done)}"
            for rank, mine in enumerate(left)
            if mine
        )
        raise Stuck(f"schedule {table.schedule.name} of {table.ranks} ranks never ends: {waiting}")
    return Simulation(table, tuple(event for mine in events for event in mine))


def micros_of(instruction: Instruction) -> tuple[int, ...]:
    return instruction.micros if isinstance(instruction, Weight) else (instruction.micro,)


def needs(table: Timetable, rank: int, instruction: Instruction) -> list[Deed]:
    """What must have been done before an instruction."""
    found: list[Deed] = []
    for micro in micros_of(instruction):
        stage = table.stage(micro, rank, instruction.chunk)
        if isinstance(instruction, Forward):
            found += [(Forward, micro, stage - 1)] if stage else []
        elif isinstance(instruction, Weight):
            found.append((Backward, micro, stage))
        else:
            found.append((Forward, micro, stage))
            found += [(Backward, micro, stage + 1)] if stage + 1 < table.stages else []
    return found


def missing(table: Timetable, rank: int, instruction: Instruction, done: Container[Deed]) -> str:
    """The needs that were not met, in words."""
    deeds = [deed for deed in needs(table, rank, instruction) if deed not in done]
    return " and ".join(
        f"{kind.__name__.lower()} of micro-batch {micro} in stage {stage}" for kind, micro, stage in deeds
    )
