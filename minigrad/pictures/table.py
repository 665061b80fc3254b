"""A table in a drawing: a line for each row, but for the middle of a long table, and a last line below it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from ..figures import INK
from .drawing import LETTER, LINE, MARGIN, MUTED, Drawing, cut
from .ends import ends_of

MOST_ROWS = 40
MOST_LETTERS = 64  # of a cell


class Cell(NamedTuple):
    """A cell's text, and the color of its box; without a color it has none."""

    text: str
    fill: str = ""


Row = Sequence[Cell]


class Table(NamedTuple):
    """The rows of a table of ``total`` rows, by their numbers; those that are not in ``rows`` are left out.

    A line says how many are. The columns in ``numbers`` are aligned at their right.
    """

    headings: Sequence[str]
    rows: Mapping[int, Row]
    total: int
    numbers: Collection[int] = ()

    def draw_on(self, drawing: Drawing, x: float, y: float) -> dict[int, float]:
        """Draw it from (x, y) on; returns the y of the middle of each row that is drawn, by its number."""
        texts = [[cut(cell.text, MOST_LETTERS) for cell in row] for row in self.rows.values()]
        lengths = [max(map(len, column)) for column in zip(self.headings, *texts, strict=True)]
        starts = [x + sum((n + 2) * LETTER for n in lengths[:i]) for i in range(len(lengths))]
        places: dict[int, float] = {}
        for i, heading in enumerate(self.headings):
            self.write(drawing, i, starts[i], lengths[i], y + LINE, heading, MUTED)
        for number, before, words in zip(self.rows, [-1, *self.rows], texts, strict=False):
            if number != before + 1:
                y += LINE
                left_out = f"\u2026 {number - before - 1:,} of {self.total:,} are left out"
                drawing.words(starts[0], y + LINE, left_out, MUTED)
            y += LINE
            places[number] = y + 0.8 * LINE
            for i, (cell, word) in enumerate(zip(self.rows[number], words, strict=True)):
                if cell.fill:
                    width = lengths[i] * LETTER + 8
                    drawing.box(starts[i] - 4, places[number] - LINE / 2 + 1, width, LINE - 2, cell.fill)
                self.write(drawing, i, starts[i], lengths[i], y + LINE, word, INK)
        return places

    def write(
        self, drawing: Drawing, column: int, x: float, length: int, y: float, text: str, color: str
    ) -> None:
        if text and column in self.numbers:
            drawing.words(x + length * LETTER, y, text, color, anchor="end")
        elif text:
            drawing.words(x, y, text, color)


def picture_of(
    title: str,
    headings: Sequence[str],
    rows: Sequence[Row],
    numbers: Collection[int] = (),
    *,
    last: str = "",
    color: str = INK,
) -> str:
    """The SVG of a table under its title, with a ``last`` line below it, in ``color``.

    Of more than MOST_ROWS rows the first and the last are drawn.
    """
    drawing = Drawing(title)
    drawing.words(MARGIN, 22, cut(title, 120), bold=True)
    shown = {i: rows[i] for i in ends_of(len(rows), MOST_ROWS)}
    Table(headings, shown, len(rows), numbers).draw_on(drawing, MARGIN, 28)
    if last:
        drawing.words(MARGIN, drawing.height + LINE, last, color, bold=True)
    return drawing.svg()
