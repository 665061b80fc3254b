"""The look of all figures: their colors, one color for a word, and how they are written.

The colors are those of Okabe and Ito (2008), which people with any kind of color vision can tell apart. Color
is never alone: each color has its dash and its marker, so that figures can be read in grey print.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from .files import replacement

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BLUE, ORANGE, GREEN, RED = "#0072B2", "#E69F00", "#009E73", "#D55E00"
PURPLE, SKY, YELLOW = "#CC79A7", "#56B4E9", "#F0E442"
INK, GREY = "#222222", "#7A7A7A"  # text and lines
PAPER, SAND = "#F1EFEA", "#DDD9D0"  # areas
COLORS = BLUE, ORANGE, GREEN, RED, PURPLE, SKY  # of things that are counted: rank 0, rank 1, ...

FORWARD, BACKWARD, WEIGHTS = BLUE, ORANGE, GREEN
COMMUNICATION, WAITING, COMPUTING = PURPLE, RED, SKY

TEXT = {  # words in a color are written in its darker shade, which can be read on white
    **{ORANGE: "#8A5F00", GREEN: "#006E50", RED: "#A84A00", PURPLE: "#96406F"},
    **{SKY: "#1B6B9C", YELLOW: "#6B6300", GREY: "#595959"},
}
DASHES: dict[str, Any] = {
    **{BLUE: "-", ORANGE: (0, (5, 1.6)), GREEN: (0, (6, 1.4, 1, 1.4)), RED: (0, (1.2, 1))},
    **{PURPLE: (0, (3, 1, 1, 1, 1, 1)), SKY: (0, (9, 2)), INK: "-", GREY: (0, (2, 2))},
}
MARKERS = {BLUE: "o", ORANGE: "s", GREEN: "^", RED: "D", PURPLE: "v", SKY: "P", INK: "o", GREY: "X"}

STYLE: dict[Any, Any] = {
    "font.size": 11,
    "axes.titlesize": 12,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "legend.handlelength": 2.6,
    "hatch.linewidth": 0.6,
}


def line(color: str) -> dict[str, Any]:
    """The settings of a line in this color, with the color's dash."""
    return {"color": color, "ls": DASHES[color], "lw": 2}


def points(color: str) -> dict[str, Any]:
    """The settings of points in this color, with the color's marker."""
    return {"color": color, "marker": MARKERS[color], "ls": "none", "ms": 7, "mec": "white"}


def curve(color: str) -> dict[str, Any]:
    """The settings of points in this color that a line connects."""
    return points(color) | {"ls": "-", "lw": 2, "ms": 6}


def hollow(color: str) -> dict[str, Any]:
    """The settings of a second curve in this color: a thin dashed line, points that are white inside."""
    return curve(color) | {"ls": (0, (5, 1.6)), "lw": 1.3, "mfc": "white", "mec": color}


def save(figure: Figure, file: Path) -> None:
    """Write a PNG, whole or not at all, with all words in colors that can be read on white."""
    from matplotlib.colors import to_hex
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        assert isinstance(text, Text)
        color = to_hex(text.get_color()).upper()
        text.set_color(TEXT.get(color, color))
    with replacement(file) as part:
        figure.savefig(part, dpi=150, format="png")
