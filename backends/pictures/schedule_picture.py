"""Pictures of a schedule: a line for each rank, and on it a box for each of its instructions.

Lecture section: pipelining. Lesson: 13_pipeline, by ``timetable.py``. A box is as wide as its time;
where no times are known, all boxes are equal, in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from minigrad.pictures.drawing import LETTER, LINE, MARGIN, MUTED, Drawing
from minigrad.pictures.ends import ends_of

from ..words import numbers

MOST_RANKS = 8
MOST_MOMENTS = 64  # at which instructions start
MOST_PIXELS = 1600  # of all times together
LETTERS = {"Forward": "", "Backward": "b", "Weight": "w"}
WORDS = {"Forward": "forward", "Backward": "backward", "Weight": "gradients of weights"}
FILLS = {"Forward": "#CFE5F3", "Backward": "#FBE9C6", "Weight": "#CBE8DC"}


class Instruction(Protocol):
    """A Forward, Backward or Weight of a timetable: its micro-batches, and the chunk of the rank's layers."""

    @property
    def micros(self) -> tuple[int, ...]: ...

    @property
    def chunk(self) -> int: ...


class Box(NamedTuple):
    """An instruction on the line of its rank, from ``start`` to ``stop``."""

    rank: int
    instruction: Instruction
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
    gap = gap_of(drawn, moments)
    unit = unit_of(drawn, gap)
    left = MARGIN + LETTER * (len(f"rank {table.ranks}") + 1)
    for box in drawn:
        x, width = left + unit * gap.before(box.start), unit * (box.stop - box.start)
        text = label(box.instruction)
        drawing.box(x, lines[box.rank], width, LINE, FILLS[type(box.instruction).__name__])
        if len(text) * LETTER < width:
            drawing.words(x + 2, lines[box.rank] + LINE - 6, text)
    right = max([left, *(left + unit * (gap.before(box.start) + box.stop - box.start) for box in drawn)]) + 8
    for rank, y in lines.items():
        drawing.words(MARGIN, y + LINE - 6, f"rank {rank}", MUTED)
        drawing.words(right, y + LINE - 6, ends[rank], MUTED)
    drawing.words(MARGIN, drawing.height + LINE, legend(boxes, len(drawn)), MUTED)
    return drawing.svg()


def legend(boxes: Sequence[Box], drawn: int) -> str:
    """What letters and marks mean, and how many instructions are not drawn."""
    kinds = {type(box.instruction).__name__ for box in boxes}
    letters = [f"{LETTERS[kind]}0 {WORDS[kind]}" for kind in LETTERS if kind in kinds]
    chunks = sorted({box.instruction.chunk for box in boxes} - {0})
    words = "; ".join(
        [f"{', '.join(letters)} of micro-batch 0", *(f"0{mark(c)} in chunk {c}" for c in chunks[:4])]
    )
    left_out = len(boxes) - drawn
    return words + (f"; {left_out:,} of {len(boxes):,} instructions are left out" if left_out else "")


def label(instruction: Instruction) -> str:
    """``3`` is the forward of micro-batch 3, ``b3`` its backward, ``w0-3`` the weights' gradients of four."""
    return LETTERS[type(instruction).__name__] + numbers(instruction.micros) + mark(instruction.chunk)


def mark(chunk: int) -> str:
    """A short mark of the chunk."""
    return ("", "'", '"')[chunk] if chunk < 3 else f"/{chunk}"


class Gap(NamedTuple):
    """A time that is not drawn: what starts ``at`` it or later is drawn earlier by ``length``."""

    at: float
    length: float

    def before(self, time: float) -> float:
        """Where a time stands in the picture."""
        return time - self.length if time >= self.at else time


def gap_of(drawn: Sequence[Box], moments: Sequence[float]) -> Gap:
    """The time between the first boxes and the last ones, but for a little to see it by."""
    if len(moments) <= MOST_MOMENTS:
        return Gap(float("inf"), 0.0)
    at = moments[len(moments) - MOST_MOMENTS // 2]
    little = min((box.stop - box.start for box in drawn if box.stop > box.start), default=0.0)
    end = max((box.stop for box in drawn if box.start < at), default=0.0)
    return Gap(at, max(at - end - little, 0.0))


def unit_of(drawn: Sequence[Box], gap: Gap) -> float:
    """Pixels of a unit of time: so many that labels fit in their boxes, within MOST_PIXELS."""
    whole = max((gap.before(box.start) + box.stop - box.start for box in drawn), default=0.0)
    times = [(len(label(box.instruction)) + 1, box.stop - box.start) for box in drawn]
    needed = [letters * LETTER / time for letters, time in times if time > 0]
    return min(max(needed, default=1.0), MOST_PIXELS / whole if whole else 1.0)
