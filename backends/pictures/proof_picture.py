"""A picture of a proof: for each parameter its largest difference from the serial run, and the conclusion."""

from __future__ import annotations

from collections.abc import Iterable

from minigrad.figures import GREEN, RED, TEXT
from minigrad.pictures.table import Cell, picture_of

Row = tuple[str, tuple[int, ...], float, float, int]
"""A parameter's name and shape, its largest difference, that relative to its scale, and the worst rank."""

EQUAL, OFF = "#CBE8DC", "#F6D0BC"
HEADINGS = ("parameter", "shape", "largest difference", "relative", "worst rank", "")


def proof_picture(differences: Iterable[Row], bound: float, conclusion: str, proved: bool) -> str:
    """The SVG of a proof; rows over the ``bound`` say so, and the last line is the ``conclusion``."""
    rows = []
    for name, shape, absolute, relative, rank in differences:
        right = relative <= bound
        numbers = (Cell(f"{absolute:.1e}"), Cell(f"{relative:.1e}"), Cell(str(rank)))
        verdict = Cell("equal", EQUAL) if right else Cell("not equal", OFF)
        rows.append((Cell(name), Cell(" x ".join(map(str, shape)) or "1"), *numbers, verdict))
    title = f"Comparison with the serial run. {conclusion}"
    return picture_of(title, HEADINGS, rows, (2, 3, 4), last=conclusion, color=TEXT[GREEN if proved else RED])
