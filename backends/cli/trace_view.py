"""A step of a traced run, shown on the terminal and as a PNG: a pipeline's with its plan."""

from __future__ import annotations

from bisect import bisect_right
from pathlib import Path
from statistics import median_low
from typing import Annotated, Any

import typer
from rich.console import Console

from ..comm.chrome import category, read_trace
from ..comm.spans import Span, Trace
from ..comm.timeline import amount, draw, duration, gantt, kind, summary
from ..pipeline import find_schedule
from ..pipeline.gantt import draw_pair, ends, slots
from ..pipeline.schedule_file import schedule_of
from ..pipeline.timetable import Timetable
from ..pipeline.trace import as_trace, bubble_of, instructions_of, plan_of, ranks_of
from .console import new_console
from .curves import check_drawing
from .next_command import NextCommand
from .run_folder import check_writable


def steps_of(trace: Trace) -> list[Trace]:
    """The training steps: each rank's spans from its first forward to the end of its update.

    A trace without updates, such as that of a plan, is one step. The ledgers are those of the whole run.
    """
    steps: dict[int, list[Span]] = {}
    for rank in range(trace.size):
        spans = sorted((s for s in trace.spans if s.rank == rank), key=lambda s: s.start)
        updates = sorted(s.stop for s in spans if s.what == "update")
        training: set[int] = set()  # the steps with a forward
        for span in spans:
            step = bisect_right(updates, span.start)
            if kind(span.what) == "forward":
                training.add(step)
            if step in training:
                steps.setdefault(step, []).append(span)
    return [Trace(tuple(steps[step]), trace.ledgers, trace.clock_error) for step in sorted(steps)]


def middle(steps: list[Trace]) -> int:
    """The step of median length without the first one, which includes one-time work."""
    lengths = {i: step.stop - step.start for i, step in enumerate(steps) if i or len(steps) == 1}
    median = median_low(lengths.values())
    return next(i for i, length in lengths.items() if length == median)


def pipelines(file: Path, step: Trace, about: dict[str, Any], png: Path | None, width: int) -> list[str]:
    """The plan and the run of the first pipeline, drawn, and how long each pipeline took and was idle."""
    table, groups = table_of(file, about, step.size)
    lines = []
    for number, ranks in enumerate(groups):
        run = ranks_of(step, ranks)
        plan = as_trace(plan_of(table, run))
        whose = f"{table.schedule.name}, {table.micros} micro-batches" + (
            f", ranks {', '.join(map(str, ranks))}" if len(groups) > 1 else ""
        )
        for name, trace in (("plan", plan), ("run", run)):
            lines += [f"{name} ({whose}): {length(trace)}, {bubble_of(trace):.1%} of the time idle"]
            if number == 0:
                lines += [slots(trace, width=width)]
        if number == 0 and png is not None:
            draw_pair(plan, run, png, title=f"{whose}: {length(plan)} planned, {length(run)} run")
    return lines


def table_of(file: Path, about: dict[str, Any], size: int) -> tuple[Timetable, list[list[int]]]:
    """The timetable of the pipelines in a file, and which ranks make each; ValueError where it is broken."""
    try:
        groups = [[int(rank) for rank in ranks] for ranks in about["ranks"]]
        written = about.get("timetable")  # of a schedule file
        schedule = find_schedule(about["schedule"]) if written is None else schedule_of(written)
        table = schedule.of(len(groups[0]), about["micro_batches"], about["chunks"])
        fits = all(len(ranks) == table.ranks and 0 <= min(ranks) <= max(ranks) < size for ranks in groups)
    except (LookupError, TypeError, ValueError) as error:
        raise ValueError(
            f"the description of the pipeline in {file} cannot be read: {error}; record the trace again"
        ) from error
    if not fits:
        raise ValueError(f"the pipelines of {file}, {groups}, are not of its {size} ranks; write it anew")
    return table, groups


def length(trace: Trace) -> str:
    """From the first instruction to the end of the last."""
    first, last = ends(instructions_of(trace))
    return duration(last - first)


def show_trace(trace: Trace, picture: Path, console: Console) -> None:
    """Draw the last steps as a PNG, and print the very last and the totals."""
    steps = steps_of(trace)
    start, last, stop = steps[-3:][0].start, steps[-1].start, steps[-1].stop
    draw(trace, picture, title=f"the last steps (whole run: {summary(trace)})", start=start, stop=stop)
    drawing = gantt(trace, max(console.width - 14, 20), last, stop)
    console.print(f"the last step:\n{drawing}", markup=False, highlight=False, soft_wrap=True)
    console.print(f"whole run: {summary(trace)}", highlight=False)


def trace(
    file: Annotated[Path, typer.Argument(help="file that train --trace wrote", metavar="FILE")],
    step: Annotated[
        int | None, typer.Option(help="number of the step, from 0 (default: a step of median length)")
    ] = None,
    png: Annotated[Path | None, typer.Option(help="also draw it to this PNG file")] = None,
    width: Annotated[
        int | None, typer.Option(min=20, help="width of the drawing in columns (default: the terminal's)")
    ] = None,
) -> None:
    """Show one step of a traced run; for a pipeline, next to its planned schedule."""
    if png is not None:
        check_writable(png, "--png")
        check_drawing()
    console = new_console()
    width = width or console.width
    run, about = read_trace(file)
    steps = steps_of(run)
    if not steps:
        raise ValueError(f"{file} has no training step: no span of it is called forward, or 'forward 3'")
    if step is None:
        step = middle(steps)
    if not 0 <= step < len(steps):
        raise ValueError(f"{file} has the steps 0 to {len(steps) - 1}, got --step {step}")
    part = steps[step]
    sent = [s for s in part.spans if category(s.what) == "sent"]  # a job of the background is one message
    lines = [
        f"step {step} of {len(steps)}, counted from 0: {len(sent):,} messages, "
        f"{amount(sum(s.bytes for s in sent))}",
        f"whole run: {summary(run)}",
    ]
    if "pipeline" in about:
        lines += pipelines(file, part, about["pipeline"], png, width)
    else:
        lines += [gantt(part, max(width - 14, 20))]
        if png is not None:
            draw(part, png, title=f"step {step}: {summary(part)}")
    if png is not None:
        lines += [f"picture in {png}"]
    console.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)
    if "pipeline" in about:
        NextCommand("minigrad lesson 13", "the gaps in a schedule").show(console)
    else:
        NextCommand("minigrad lesson 06", "what hides a message").show(console)
