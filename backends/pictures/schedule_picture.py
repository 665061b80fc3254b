"""Pictures of a schedule: a line for each rank, and on it a box for each of its instructions.

Lecture section: pipelining. Lesson: 13_pipeline, by ``timetable.py``. A box is as wide as its time;
where no times are known, all boxes are equal, in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from minigrad.pictures.drawing import LETTER, LINE, MARGIN, MUTED, Drawing
from minigrad.pictures.ends import ends_of

from ..words import numbers

MOST_RANKS = 8
MOST_MOMENTS = 64  # at which instructions start
MOST_PIXELS = 1600  # of all times together
LETTERS = {"Forward": "", "Backward": "b", "Weight": "w"}
WORDS = {"Forward": "forward", "Backward": "backward", "Weight": "weight gradients"}
FILLS = {"Forward": "#CFE5F3", "Backward": "#FBE9C6", "Weight": "#CBE8DC"}


class Box(NamedTuple):
    """A Forward, Backward or Weight on the line of its rank, from ``start`` to ``stop``."""

    rank: int
    instruction: Any
    start: float
    stop: float


def picture_of_order(table: Any) -> str:
    """The SVG of a timetable: each rank's instructions in their order, in boxes of one width."""
    boxes = [
        Box(rank, instruction, place, place + 1)
        for rank, mine in enumerate(table.instructions)
        for place, instruction in enumerate(mine)
    ]
    ends = [f"{len(mine)} instructions" for mine in table.instructions]
    return picture(f"{in_words(table)}: instructions in order, without times", table, boxes, ends)


def picture_of_times(simulation: Any) -> str:
    """The SVG of a simulation: when each rank carries out which instruction, and how long it is idle."""
    boxes = [Box(e.rank, e.instruction, float(e.start), float(e.stop)) for e in simulation.events]
    whole = float(simulation.makespan)
    idle = [float(simulation.idle(rank)) for rank in range(simulation.table.ranks)]
    ends = [f"idle {part:g} of {whole:g}" for part in idle]
    title = (
        f"{in_words(simulation.table)}: it takes {whole:g}, and {float(simulation.bubble):.1%} of it is idle"
    )
    return picture(title, simulation.table, boxes, ends)


def in_words(table: Any) -> str:
    chunks = f", {table.chunks} chunks each" if table.chunks > 1 else ""
    return f"Schedule {table.schedule.name} of {table.ranks} ranks{chunks} and {table.micros} micro-batches"


def picture(title: str, table: Any, boxes: Sequence[Box], ends: Sequence[str]) -> str:
    """The SVG of the ``boxes`` of all ranks; a rank's line ends in the words that it has in ``ends``.

    Of more than MOST_RANKS ranks the first and the last are drawn, and of more than MOST_MOMENTS moments the
    instructions that start in the first and in the last; a line says how many are left out.
    """
    drawing = Drawing(title)
    drawing.words(MARGIN, 22, title, bold=True)
    moments = sorted({box.start for box in boxes})
    shown = {moments[i] for i in ends_of(len(moments), MOST_MOMENTS)}
    lines = {rank: 34 + i * (LINE + 4) for i, rank in enumerate(ends_of(table.ranks, MOST_RANKS))}
    drawn = [box for box in boxes if box.start in shown and box.rank in lines]
    if len(shown) < len(moments):
        drawn = without_gap(drawn, moments[len(moments) - MOST_MOMENTS // 2])
    unit = unit_of(drawn)
    left = MARGIN + LETTER * (len(f"rank {table.ranks}") + 1)
    for box in drawn:
        x, width, text = left + unit * box.start, unit * (box.stop - box.start), label(box.instruction)
        drawing.box(x, lines[box.rank], width, LINE, FILLS[type(box.instruction).__name__])
        if len(text) * LETTER < width:
            drawing.words(x + 2, lines[box.rank] + LINE - 6, text)
    right = left + unit * max((box.stop for box in drawn), default=0.0) + 8
    for rank, y in lines.items():
        drawing.words(MARGIN, y + LINE - 6, f"rank {rank}", MUTED)
        drawing.words(right, y + LINE - 6, ends[rank], MUTED)
    key, left_out = "; ".join(key_of(box.instruction for box in boxes)[:5]), len(boxes) - len(drawn)
    key += f"; {left_out:,} of {len(boxes):,} instructions are left out" if left_out else ""
    drawing.words(MARGIN, drawing.height + LINE, key, MUTED)
    return drawing.svg()


def key_of(instructions: Iterable[Any]) -> list[str]:
    """What the letters and marks mean that occur: ``b0 backward of micro-batch 0``, ``' chunk 1``."""
    present = {(type(i).__name__, i.chunk) for i in instructions}
    letters = [f"{LETTERS[kind]}0 {WORDS[kind]}" for kind in LETTERS if kind in {kind for kind, _ in present}]
    chunks = sorted({chunk for _, chunk in present} - {0})
    return [f"{', '.join(letters)} of micro-batch 0", *(f"{mark(chunk)} chunk {chunk}" for chunk in chunks)]


def label(instruction: Any) -> str:
    """``3`` is the forward of micro-batch 3, ``b3`` its backward, ``w0-3`` the weights' gradients of four."""
    return LETTERS[type(instruction).__name__] + numbers(instruction.micros) + mark(instruction.chunk)


def mark(chunk: int) -> str:
    """A short mark of the chunk."""
    return ("", "'", '"')[chunk] if chunk < 3 else f"/{chunk}"


def without_gap(drawn: Sequence[Box], at: float) -> list[Box]:
    """The boxes without the time before ``at`` in which none is drawn, but for a little to see it by."""
    little = min((box.stop - box.start for box in drawn if box.stop > box.start), default=0.0)
    end = max((box.stop for box in drawn if box.start < at), default=0.0)
    gap = max(at - end - little, 0.0)
    return [
        box._replace(start=box.start - gap, stop=box.stop - gap) if box.start >= at else box for box in drawn
    ]


def unit_of(drawn: Sequence[Box]) -> float:
    """Pixels of a unit of time: so many that labels fit in their boxes, within MOST_PIXELS."""
    whole = max((box.stop for box in drawn), default=0.0)
    times = [(len(label(box.instruction)) + 1, box.stop - box.start) for box in drawn]
    needed = [letters * LETTER / time for letters, time in times if time > 0]
    return min(max(needed, default=1.0), MOST_PIXELS / whole if whole else 1.0)
