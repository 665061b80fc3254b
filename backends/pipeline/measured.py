"""A run beside its plan: the same instructions with the seconds they took, and nobody ever late.

Lecture section: pipelining. Lesson: 13_pipeline. What the run takes longer is waiting: for messages, for a
core that another rank has, for what a rank does between its instructions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

from ..comm.spans import Span, Trace
from .schedule import Backward, Forward, Instruction, Timetable, Weight
from .simulation import Costs, Simulation, micros_of, simulate
from .spans import instruction_of

Done = list[tuple[Span, Instruction]]


def plan_of(table: Timetable, run: Trace) -> Simulation:
    """One step's instructions, each with the mean seconds that its kind took in its stage, and no messages.

    ``run`` is the step, ranks counted as in ``table``. Micro-batches of which it has no forward had no
    samples, and are left out. Raises ValueError where it has what is not in the table.
    """
    done = done_in(table, run)
    there = {i.micro for _, i in done if isinstance(i, Forward)}
    instructions = tuple(
        tuple(part for i in mine if (part := present(i, there)) is not None) for mine in table.instructions
    )
    return simulate(replace(table, instructions=instructions), costs_of(table, done))


def done_in(table: Timetable, run: Trace) -> Done:
    """The instructions in a trace, also those that took less than its clock can tell."""
    found = [(span, i) for span in run.spans if (i := instruction_of(span.what)) is not None]
    for span, i in found:
        if span.rank >= table.ranks or not is_in(table, span.rank, i):
            raise ValueError(
                f"rank {span.rank} did {span.what!r}, which is not in schedule {table.schedule.name} for "
                f"{table.ranks} ranks, {table.micros} micro-batches and {table.chunks} chunks"
            )
    return found


def is_in(table: Timetable, rank: int, i: Instruction) -> bool:
    """Whether an instruction, or for a ``Weight`` one of more micro-batches, is in the table."""
    return any(
        type(i) is type(other) and i.chunk == other.chunk and set(micros_of(i)) <= set(micros_of(other))
        for other in table.instructions[rank]
    )


def present(i: Instruction, there: set[int]) -> Instruction | None:
    """An instruction without micro-batches that are not there; None where none is left."""
    micros = tuple(micro for micro in micros_of(i) if micro in there)
    return (replace(i, micros=micros) if isinstance(i, Weight) else i) if micros else None


def costs_of(table: Timetable, done: Done) -> Costs:
    """The mean seconds of each kind of instruction in each stage, for one micro-batch; 0 where none was done.

    Where a stage has its weights' gradients apart, its backward is that of the micro-batches for which they
    are; else the whole one.
    """
    seconds: defaultdict[tuple[str, int], list[float]] = defaultdict(list)
    for span, i in done:
        for micro in micros_of(i):
            whole = isinstance(i, Backward) and (micro, i.chunk) not in table.split[span.rank]
            what = "whole" if whole else type(i).__name__
            stage = table.stage(micro, span.rank, i.chunk)
            seconds[what, stage].append((span.stop - span.start) / len(micros_of(i)))
    means = {key: fmean(found) for key, found in seconds.items()}
    forward, backward, weight, whole = (
        [means.get((what, stage), 0.0) for stage in range(table.stages)]
        for what in ("Forward", "Backward", "Weight", "whole")
    )
    backward = [a or b for a, b in zip(backward, whole, strict=True)]
    return Costs(forward, backward, weight)


def ranks_of(trace: Trace, ranks: Sequence[int]) -> Trace:
    """The part of some ranks, which count as 0, 1, ... in this order, as those of one pipeline of several."""
    place = {rank: i for i, rank in enumerate(ranks)}
    spans = tuple(span._replace(rank=place[span.rank]) for span in trace.spans if span.rank in place)
    return Trace(spans, tuple(trace.ledgers[rank] for rank in ranks), trace.clock_error)
