"""The plan and the run of a pipeline as traces of the same kind: one span for each instruction.

Lecture section: pipelining. Lesson: 13_pipeline. A span has the instruction's ``span_name``; spans with other
names are not instructions. ``plan_of`` simulates the instructions of a run with the times that they took.
What the run takes longer than this plan is waiting: for messages, for a core that another rank uses, or for
what a rank does between its instructions.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

from ..comm.spans import Ledger, Span, Trace, covered
from .simulation import Costs, Simulation, simulate
from .timetable import Backward, Forward, Instruction, Timetable, Weight, present, span_name

NAME = re.compile(r"(forward|backward|weight) (\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*)(?:/(\d+))?")


def instruction_of(what: str) -> Instruction | None:
    """The instruction whose ``span_name`` this is; None for any other name."""
    match = NAME.fullmatch(what)
    if match is None:
        return None
    kind, runs, chunk = match.groups("0")
    ends = [[int(n) for n in run.split("-")] for run in runs.split(",")]
    micros = tuple(n for run in ends for n in range(run[0], run[-1] + 1))
    if kind == "weight":
        i = Weight(micros, int(chunk))
    else:
        i = (Forward if kind == "forward" else Backward)(ends[0][0], int(chunk))
    return i if span_name(i) == what else None


def instructions_of(trace: Trace) -> list[tuple[Span, Instruction]]:
    """The spans that are instructions and took any time, with these; ValueError where there are none."""
    pairs = [(span, i) for span in trace.spans if span.start < span.stop and (i := instruction_of(span.what))]
    if not pairs:
        raise ValueError(
            "no span of the trace is an instruction of a pipeline, such as 'forward 3'; trace a pipeline's "
            "run, or simulate a timetable and take as_trace of it"
        )
    return pairs


def as_trace(simulation: Simulation, seconds: float = 1.0) -> Trace:
    """The trace of a run that keeps to the plan; one unit of the simulation's time takes ``seconds``."""
    spans = []
    for rank, i, *times in simulation.events:
        start, stop = (float(time * seconds) for time in times)
        spans.append(Span(rank, span_name(i), None, 0, None, start, stop))
    return Trace(tuple(spans), tuple(Ledger() for _ in range(simulation.table.ranks)))


def between(trace: Trace, start: float, stop: float) -> Trace:
    """The spans that lie within these seconds, such as those of one step; the ledgers are the whole run's."""
    inside = tuple(span for span in trace.spans if start <= span.start and span.stop <= stop)
    return Trace(inside, trace.ledgers, trace.clock_error)


def bubbles_of(trace: Trace) -> list[float]:
    """By rank, the share of the time from the first instruction of all to the last that it does none.

    Instructions that take no time count as none, also where they come first or last.
    """
    spans = [span for span, _ in instructions_of(trace)]
    whole = max(s.stop for s in spans) - min(s.start for s in spans)
    return [1 - covered(s for s in spans if s.rank == rank) / whole for rank in range(trace.size)]


def bubble_of(trace: Trace) -> float:
    """The share of all ranks' time in which they do no instruction: a plan's ``Simulation.bubble``."""
    return sum(bubbles_of(trace)) / trace.size


# A run and its plan

Pairs = list[tuple[Span, Instruction]]


def plan_of(table: Timetable, run: Trace) -> Simulation:
    """One step's instructions, each with the mean seconds that its kind took in its stage, and no messages.

    ``run`` is the step, ranks counted as in ``table``. Micro-batches of which it has no forward had no
    samples, and are left out. Raises ValueError where it has what is not in the table.
    """
    pairs = pairs_in(table, run)
    micros = {i.micro for _, i in pairs if isinstance(i, Forward)}
    instructions = tuple(tuple(present(mine, micros)) for mine in table.instructions)
    return simulate(replace(table, instructions=instructions), costs_of(table, pairs))


def pairs_in(table: Timetable, run: Trace) -> Pairs:
    """The instructions in a trace with their spans, also those that took less than its clock can measure."""
    pairs = [(span, i) for span in run.spans if (i := instruction_of(span.what))]
    for span, i in pairs:
        mine = table.instructions[span.rank] if span.rank < table.ranks else ()
        # A ``Weight`` of the table may be for more micro-batches: some may have had no samples.
        if not any(type(i) is type(j) and i.chunk == j.chunk and {*i.micros} <= {*j.micros} for j in mine):
            raise ValueError(
                f"rank {span.rank} did {span.what!r}, which is not in schedule {table.schedule.name} for "
                f"{table.ranks} ranks, {table.micros} micro-batches and {table.chunks} chunks"
            )
    return pairs


def costs_of(table: Timetable, pairs: Pairs) -> Costs:
    """The mean seconds of each kind of instruction in each stage, for one micro-batch; 0 where none was done.

    Where a stage has its weights' gradients apart, its backward is that of the micro-batches for which they
    are; else the whole one.
    """
    seconds: defaultdict[tuple[str, int], list[float]] = defaultdict(list)
    for span, i in pairs:
        for micro in i.micros:
            whole = isinstance(i, Backward) and (micro, i.chunk) not in table.split[span.rank]
            what = "whole" if whole else type(i).__name__
            stage = table.stage(micro, span.rank, i.chunk)
            seconds[what, stage].append((span.stop - span.start) / len(i.micros))
    means = {key: fmean(times) for key, times in seconds.items()}
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
