"""The plan and the run of a pipeline in the same picture: a row for each rank, a box for each instruction.

Lecture section: pipelining. Lesson: 13_pipeline. The trace is ``as_trace`` of a simulation, or the record
of a running pipeline's communicator; ``between`` takes one step out of many.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from minigrad.figures import save

from ..comm import timeline
from ..comm.spans import Trace
from ..comm.timeline import FILLS, Fill, Panel, text_runs
from ..pictures.schedule_picture import WORDS, key_of, label
from ..words import numbers
from .schedules import find_schedule
from .simulation import Costs, simulate
from .timetable import Backward, Forward, Instruction, Weight
from .trace import Pairs, as_trace, bubble_of, bubbles_of, instructions_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

KINDS = (Forward, Backward, Weight)
MOST_COLUMNS = 100  # of a run; a plan may have more, up to MOST_SLOTS
MOST_SLOTS = 1000


def text_of_plan(schedule: str, *, ranks: int, micros: int, weight: int = 0) -> str:
    """The plan of a schedule as text, as ``slots`` draws it.

    A forward takes one slot and a backward one; the gradients of the weights take ``weight`` more.
    """
    return slots(as_trace(simulate(find_schedule(schedule).of(ranks, micros), Costs(weight=weight))))


def slots(trace: Trace, unit: float | None = None, *, width: int | None = None) -> str:
    """Text: ``3`` is the forward of micro-batch 3, ``b3`` its backward, ``w3`` its weights' gradients.

    A column stands for ``unit`` seconds and shows what took most of them; a dot is idle. The default unit of
    a plan is the longest of which all its times are multiples; that of a run is its shortest instruction or a
    hundredth of the whole. A column is as wide as the longest name in it; with a ``width`` the picture has
    this many characters, and instructions without room for their name show its letter, forwards a dash. A row
    ends in the share of the time in which its rank was idle.
    """
    pairs = instructions_of(trace)
    first, last = ends(pairs)
    columns = max(width - len(f"rank {trace.size} || 100% idle"), 20) if width else 0
    unit = (last - first) / columns if columns else unit or slot(pairs)
    columns = columns or max(ceil((last - first) / unit - 0.5), 1)
    names = {span.what: label(i) for span, i in pairs}
    rows = [
        text_runs((s for s, _ in pairs if s.rank == rank), lambda s: names[s.what], first, unit, columns)
        for rank in range(trace.size)
    ]
    needed = [ceil((len(name) + 1) / n) for row in rows for name, n in row if name]
    cell = 1 if width else max([2, *needed])
    margin = len(str(trace.size - 1))
    texts = ["".join(text_of(*run, cell) for run in row)[: columns * cell - (cell > 1)] for row in rows]
    lines = [
        f"rank {rank:>{margin}} |{text}| {share:.0%} idle"
        for rank, (text, share) in enumerate(zip(texts, bubbles_of(trace), strict=True))
    ]
    return "\n".join([*lines, "  ".join([*key_of(i for _, i in pairs), ". idle"])])


def text_of(name: str, columns: int, cell: int) -> str:
    """The instruction called ``name`` in ``columns`` of ``cell`` characters; "" is idle."""
    room = columns * cell
    if not name:
        return ".".ljust(cell) * columns
    if len(name) > room:
        return (name[0] if name[0].isalpha() else "-") * room
    return name.ljust(room - 1, "-" if columns > 1 else " ").ljust(room)


def ends(pairs: Pairs) -> tuple[float, float]:
    """When the first instruction starts, and the last one stops."""
    return min(span.start for span, _ in pairs), max(span.stop for span, _ in pairs)


def slot(pairs: Pairs) -> float:
    """The longest time that divides all instructions' times; where there is none, the shortest of them."""
    first, last = ends(pairs)
    shortest = min(span.stop - span.start for span, _ in pairs)
    moments = {t - first for span, _ in pairs for t in (span.start, span.stop)}
    for unit in (shortest / n for n in range(1, 13)):
        if (last - first) / unit > MOST_SLOTS:
            break
        if all(abs(t / unit - round(t / unit)) < 1e-6 for t in moments):
            return unit
    return max(shortest, (last - first) / MOST_COLUMNS)


def draw_pair(plan: Trace, run: Trace, file: Path, *, title: str = "") -> None:
    """A PNG of the plan above the run, each as wide as the picture however long it took."""
    if plan.size != run.size:
        raise ValueError(
            f"the plan is for {plan.size} ranks, and the run had {run.size}; both need as many rows"
        )
    save(figure_of({"plan": plan, "run": run}, title), file)


def figure_of(
    traces: dict[str, Trace], title: str = "", *, one_clock: bool = False, chunk_names: Sequence[str] = ()
) -> Figure:
    """The traces above one another, each under its name and the share of its ranks' time that is idle.

    Each is as wide as the figure, or with ``one_clock`` as wide as it is long compared with the longest.
    ``chunk_names`` are the words for the chunks in the key; the default is chunk 0, chunk 1 and so on.
    """
    every = [instructions_of(trace) for trace in traces.values()]
    instructions = {span.what: i for pairs in every for span, i in pairs}
    chunks = 1 + max(i.chunk for i in instructions.values())
    words = chunk_names or [f"chunk {chunk}" for chunk in range(chunks)]
    in_order = sorted(instructions.items(), key=lambda item: (KINDS.index(type(item[1])), item[1].chunk))
    fills = {what: fill_of(i, chunks) for what, i in in_order}
    legend = {
        WORDS[type(i).__name__] + f", {words[i.chunk]}" * (chunks > 1): fills[what] for what, i in in_order
    }
    panels = []
    for (name, trace), pairs in zip(traces.items(), every, strict=True):
        idle = f"{bubble_of(trace):.0%} of the time idle"
        bars = [(rank, 0.84, [span for span, _ in pairs if span.rank == rank]) for rank in range(trace.size)]
        panels.append(Panel(f"{name}: {idle}" if name else idle, trace.size, *ends(pairs), bars))
    boxes = max(  # of the median length, side by side
        (p.last - p.first) / median(span.stop - span.start for span, _ in pairs)
        for p, pairs in zip(panels, every, strict=True)
    )
    width = min(max(2 + 0.28 * boxes, 10 if one_clock else 7), 12)
    figure = timeline.figure_of(panels, lambda span: fills[span.what], legend, title=title, width=width)
    for axes, trace in zip(figure.axes, traces.values(), strict=True):
        for rank, share in enumerate(bubbles_of(trace)):
            at = (1, rank), (4, 0), ("axes fraction", "data"), "offset points"
            axes.annotate(f"{share:.0%} idle", *at, va="center")
    if one_clock:
        for axes in figure.axes:
            axes.set_xlim(0, max(panel.scale[0] * (panel.last - panel.first) for panel in panels))
    figure.draw_without_rendering()  # lays it out: from here on it is known how wide the boxes are
    for axes, panel, pairs in zip(figure.axes, panels, every, strict=True):
        write_numbers(axes, panel, pairs, fills)
    return figure


def write_numbers(axes: Axes, panel: Panel, pairs: Pairs, fills: dict[str, Fill]) -> None:
    """In each box the numbers of its micro-batches, as large as fits; none where none could be read."""
    points = 72 / axes.figure.dpi
    points_per_second = axes.get_window_extent().width * points / (axes.get_xlim()[1] / panel.scale[0])
    for span, i in pairs:
        text = numbers(i.micros)
        room = (span.stop - span.start) * points_per_second - 2
        size = min(9.0, room / (0.65 * len(text)))
        if size >= 4.5:
            middle = ((span.start + span.stop) / 2 - panel.first) * panel.scale[0]
            red, green, blue = fills[span.what].color
            color = "white" if 0.3 * red + 0.6 * green + 0.1 * blue < 0.4 else "black"
            axes.text(middle, span.rank, text, size=size, color=color, ha="center", va="center_baseline")


def fill_of(i: Instruction, chunks: int) -> Fill:
    """The look of an instruction's box: its kind's, paler in later chunks."""
    from matplotlib.colors import to_rgb

    color, hatch = FILLS[type(i).__name__.lower()]
    white = 0.6 * i.chunk / chunks
    r, g, b = (white + (1 - white) * c for c in to_rgb(color))
    # In a grey print the green of weights is like the pale blue of forwards.
    return Fill((r, g, b), hatch if chunks > 1 else "")
