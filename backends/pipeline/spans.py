"""A pipeline's plan and its run are the same kind of trace: a span for each instruction, named after it.

Lecture section: pipelining. Lesson: 13_pipeline. "forward 3" is what was done to micro-batch 3, "weight 0-3"
to several; "/1" at the end names a chunk other than the first. Spans of other names are no instructions.
"""

from __future__ import annotations

import re

from ..comm.spans import Ledger, Span, Trace, covered
from .schedule import Backward, Forward, Instruction, Weight
from .simulation import Simulation

NAME = re.compile(r"(forward|backward|weight) (\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*)(?:/(\d+))?")


def span_name(instruction: Instruction) -> str:
    """The name under which an instruction is traced."""
    kind = type(instruction).__name__.lower()
    micros = numbers(instruction.micros) if isinstance(instruction, Weight) else str(instruction.micro)
    return f"{kind} {micros}/{instruction.chunk}" if instruction.chunk else f"{kind} {micros}"


def instruction_of(what: str) -> Instruction | None:
    """The instruction whose ``span_name`` this is; None for any other name."""
    found = NAME.fullmatch(what)
    if found is None:
        return None
    kind, runs, chunk = found.groups("0")
    ends = [[int(n) for n in run.split("-")] for run in runs.split(",")]
    micros = tuple(n for run in ends for n in range(run[0], run[-1] + 1))
    if kind == "weight":
        i = Weight(micros, int(chunk))
    else:
        i = (Forward if kind == "forward" else Backward)(ends[0][0], int(chunk))
    return i if span_name(i) == what else None


def numbers(micros: tuple[int, ...]) -> str:
    """Runs of consecutive numbers by their ends: (0, 1, 2, 5) is "0-2,5"."""
    runs: list[list[int]] = []
    for micro in micros:
        if runs and micro == runs[-1][-1] + 1:
            runs[-1].append(micro)
        else:
            runs.append([micro])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def instructions_of(trace: Trace) -> list[tuple[Span, Instruction]]:
    """The spans that are instructions and took any time, with these; ValueError where there are none."""
    found = [(span, instruction_of(span.what)) for span in trace.spans if span.start < span.stop]
    done = [(span, i) for span, i in found if i is not None]
    if not done:
        raise ValueError(
            "no span of the trace is an instruction of a pipeline, such as 'forward 3'; trace a pipeline's "
            "run, or simulate a timetable and take as_trace of it"
        )
    return done


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
