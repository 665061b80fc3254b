"""The plan and the run of a pipeline in the same picture: a row for each rank, a box for each instruction.

Lecture section: pipelining. Lesson: 13_pipeline. What is drawn is a trace: ``as_trace`` of a simulation, or
what a running pipeline's communicator recorded; ``between`` takes one step out of many.
"""

from __future__ import annotations

from math import ceil
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from ..comm.spans import Span, Trace
from ..comm.timeline import save, time_unit
from .schedule import Backward, Forward, Instruction, Weight, numbers
from .schedules import find_schedule
from .simulation import Costs, simulate
from .trace import as_trace, bubble_of, bubbles_of, instructions_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LETTERS = {Forward: "", Backward: "b", Weight: "w"}
NAMES = {Forward: "forward", Backward: "backward", Weight: "weight gradients"}
COLORS = {Forward: "#4c78a8", Backward: "#f58518", Weight: "#54a24b"}
IDLE = "#ececec"
MOST_COLUMNS = 100  # of a run; a plan may have more, up to MOST_SLOTS
MOST_SLOTS = 1000

Done = list[tuple[Span, Instruction]]


def planned(schedule: str, *, ranks: int, micros: int, weight: int = 0) -> str:
    """The plan of a schedule as text, as ``slots`` draws it.

    A forward takes one slot and a backward one; the gradients of the weights take ``weight`` more.
    """
    return slots(as_trace(simulate(find_schedule(schedule).of(ranks, micros), Costs(weight=weight))))


def slots(trace: Trace, unit: float | None = None) -> str:
    """Text: ``3`` is the forward of micro-batch 3, ``b3`` its backward, ``w3`` its weights' gradients.

    A column stands for ``unit`` seconds and shows what is done in the middle of them; a dot is idle. The
    default is the longest of which all times of a plan are multiples, and for a run its shortest instruction
    or a hundredth of the whole; what is shorter than a column may not be seen. A row ends in the share of
    the time in which its rank was idle.
    """
    done = instructions_of(trace)
    first, last = ends(done)
    unit = unit or slot(done)
    columns = [[ceil((t - first) / unit - 0.5) for t in (span.start, span.stop)] for span, _ in done]
    shown = [(span.rank, i, a, b) for (span, i), (a, b) in zip(done, columns, strict=True) if a < b]
    cell = max([2, *(ceil((len(label(i)) + 1) / (b - a)) for _, i, a, b in shown)])
    rows = [["." + " " * (cell - 1)] * max(b for _, b in columns) for _ in range(trace.size)]
    for rank, i, a, b in shown:
        text = label(i).ljust((b - a) * cell - 1, "-" if b - a > 1 else " ") + " "
        rows[rank][a:b] = [text[at : at + cell] for at in range(0, len(text), cell)]
    margin = len(str(trace.size - 1))
    lines = [
        f"rank {rank:>{margin}} |{''.join(row)[:-1]}| {share:.0%} idle"
        for rank, (row, share) in enumerate(zip(rows, bubbles_of(trace), strict=True))
    ]
    return "\n".join([*lines, legend([i for _, i in done])])


def legend(done: list[Instruction]) -> str:
    """What those of the letters mean that occur."""
    kinds = [f"{LETTERS[kind]}0 {NAMES[kind]}" for kind in LETTERS if any(isinstance(i, kind) for i in done)]
    chunks = [f"{mark(chunk)} chunk {chunk}" for chunk in sorted({i.chunk for i in done} - {0})]
    return "  ".join([f"{', '.join(kinds)} of micro-batch 0", *chunks, ". idle"])


def label(i: Instruction) -> str:
    return LETTERS[type(i)] + micros(i) + mark(i.chunk)


def micros(i: Instruction) -> str:
    return numbers(i.micros) if isinstance(i, Weight) else str(i.micro)


def mark(chunk: int) -> str:
    """Which chunk, in as few letters as can be."""
    return ("", "'", '"')[chunk] if chunk < 3 else f"/{chunk}"


def ends(done: Done) -> tuple[float, float]:
    """When the first instruction starts, and the last one stops."""
    return min(span.start for span, _ in done), max(span.stop for span, _ in done)


def slot(done: Done) -> float:
    """The longest time that divides all instructions' times; where there is none, the shortest of them."""
    first, last = ends(done)
    shortest = min(span.stop - span.start for span, _ in done)
    moments = {t - first for span, _ in done for t in (span.start, span.stop)}
    for unit in (shortest / n for n in range(1, 13)):
        if (last - first) / unit > MOST_SLOTS:
            break
        if all(abs(t / unit - round(t / unit)) < 1e-6 for t in moments):
            return unit
    return max(shortest, (last - first) / MOST_COLUMNS)


def draw(trace: Trace, file: Path, *, title: str = "") -> None:
    """A PNG: a box with the micro-batch's number for each instruction, a row for each rank."""
    save(figure_of({title: trace}), file)


def draw_pair(plan: Trace, run: Trace, file: Path, *, title: str = "") -> None:
    """A PNG of the plan above the run, each as wide as the picture however long it took."""
    if plan.size != run.size:
        raise ValueError(
            f"the plan is for {plan.size} ranks, and the run had {run.size}; both need as many rows"
        )
    save(figure_of({"plan": plan, "run": run}, title), file)


def figure_of(traces: dict[str, Trace], title: str = "") -> Figure:
    """The traces above one another, each under its name and the share of its ranks' time that is idle."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    every = [instructions_of(trace) for trace in traces.values()]
    chunks = 1 + max(i.chunk for done in every for _, i in done)
    found = {(type(i), i.chunk) for done in every for _, i in done}
    entries = 1.7 * (1 + len(found)) if chunks > 1 else 0.0  # inches of the legend
    width = min(max(2 + 0.28 * max(map(typical_boxes, every)), 7, entries), 17)
    height = 0.6 + sum(0.8 + 0.34 * trace.size for trace in traces.values())
    figure = Figure(figsize=(width, height), layout="constrained")
    if title:
        figure.suptitle(title, fontsize=11)
    heights = [1 + trace.size for trace in traces.values()]
    rows = list(figure.subplots(len(every), squeeze=False, height_ratios=heights).flat)
    for axes, (name, trace), done in zip(rows, traces.items(), every, strict=True):
        boxes(axes, done, bubbles_of(trace), chunks)
        idle = f"{bubble_of(trace):.0%} of the time idle"
        axes.set_title(f"{name}: {idle}" if name else idle, loc="left", fontsize=10)
    handles = [
        Patch(
            color=shade(kind, chunk, chunks),
            label=f"{NAMES[kind]}, chunk {chunk}" if chunks > 1 else NAMES[kind],
        )
        for kind in COLORS
        for chunk in range(chunks)
        if (kind, chunk) in found
    ]
    handles.append(Patch(color=IDLE, label="idle"))
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False, fontsize=9)
    figure.draw_without_rendering()  # lays it out: from here on it is known how wide the boxes are
    for axes, done in zip(rows, every, strict=True):
        write_numbers(axes, done, chunks)
    return figure


def typical_boxes(done: Done) -> float:
    """How many boxes of the median length the picture is wide."""
    first, last = ends(done)
    return (last - first) / median(span.stop - span.start for span, _ in done)


def boxes(axes: Axes, done: Done, bubbles: list[float], chunks: int) -> None:
    """The instructions' boxes on the rows of the ranks, and at the end of each row how long it was idle."""
    from matplotlib.patches import Rectangle

    (first, last), ranks = ends(done), range(len(bubbles))
    scale, unit = time_unit(last - first)
    for rank in ranks:
        axes.broken_barh([(0, (last - first) * scale)], (rank - 0.42, 0.84), facecolors=IDLE)
    for span, i in done:
        corner, length = ((span.start - first) * scale, span.rank - 0.42), (span.stop - span.start) * scale
        face = shade(type(i), i.chunk, chunks)
        axes.add_patch(Rectangle(corner, length, 0.84, facecolor=face, edgecolor="white", linewidth=0.6))
    axes.set(xlim=(0, (last - first) * scale), ylim=(len(bubbles) - 0.5, -0.5), xlabel=f"time ({unit})")
    axes.set_yticks(ranks, [f"rank {rank}" for rank in ranks])
    for rank, share in enumerate(bubbles):
        axes.annotate(
            f"{share:.0%} idle", (1, rank), (4, 0), ("axes fraction", "data"), "offset points", va="center"
        )
    axes.spines[:].set_visible(False)
    axes.tick_params(axis="y", length=0)


def write_numbers(axes: Axes, done: Done, chunks: int) -> None:
    """In each box the numbers of its micro-batches, as large as fits; none where none could be read."""
    (first, last), points = ends(done), 72 / axes.figure.dpi
    scale, _ = time_unit(last - first)
    points_per_second = axes.get_window_extent().width * points / (last - first)
    for span, i in done:
        text = micros(i)
        room = (span.stop - span.start) * points_per_second - 2
        size = min(9.0, room / (0.65 * len(text)))
        if size >= 4.5:
            middle = ((span.start + span.stop) / 2 - first) * scale
            dark = sum(shade(type(i), i.chunk, chunks)) < 1.5
            color = "white" if dark else "black"
            axes.text(middle, span.rank, text, size=size, color=color, ha="center", va="center_baseline")


def shade(kind: type[Instruction], chunk: int, chunks: int) -> tuple[float, float, float]:
    """A kind's color, paler in later chunks."""
    from matplotlib.colors import to_rgb

    white = 0.6 * chunk / chunks
    r, g, b = (white + (1 - white) * c for c in to_rgb(COLORS[kind]))
    return r, g, b
