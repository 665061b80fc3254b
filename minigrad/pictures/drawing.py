"""A drawing of boxes, lines and words as SVG, with a title that says in words what it shows.

Notebooks put it into their page or into an image; so it brings its own paper, to be read on dark pages, too,
and has neither scripts nor style sheets nor anything from elsewhere. The same object gives the same text.
"""

from __future__ import annotations

import re

from ..figures import GREY, INK, PAPER, TEXT

SIZE = 12  # of letters, in pixels
LETTER = 0.61 * SIZE  # the width of a letter of the widest common monospace fonts
LINE = 20  # from one line of words to the next
MARGIN = 12
MUTED = TEXT[GREY]
NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML cannot hold."""


class Drawing:
    """Boxes, lines and words at places in pixels, y growing downwards; its size is that of all of them.

    ``title`` says in a sentence what the drawing shows.
    """

    def __init__(self, title: str):
        self.title = title
        self.parts: list[str] = []
        self.width = self.height = 0.0

    def words(
        self, x: float, y: float, text: str, color: str = INK, *, anchor: str = "start", bold: bool = False
    ) -> None:
        """Words whose first letter, or with the ``anchor`` "end" whose last one, is at ``x``.

        ``y`` is the line that letters stand on.
        """
        weight = ' font-weight="bold"' if bold else ""
        placed = "" if anchor == "start" else f' text-anchor="{anchor}"'
        self.parts.append(f'<text x="{x:g}" y="{y:g}" fill="{color}"{placed}{weight}>{escaped(text)}</text>')
        self.cover(x + (LETTER * len(text) if anchor == "start" else 0.0), y + 0.3 * SIZE)

    def box(self, x: float, y: float, width: float, height: float, fill: str) -> None:
        """A rectangle, its corner nearest to the origin at (x, y)."""
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" fill="{fill}" stroke="{GREY}"/>'
        )
        self.cover(x + width, y + height)

    def arc(self, x: float, y: float, to_y: float, reach: float) -> None:
        """A curve from (x, y) to (x, to_y) that goes ``reach`` to the left on its way."""
        self.parts.append(
            f'<path d="M{x:g} {y:g}C{x - reach:g} {y:g} {x - reach:g} {to_y:g} {x:g} {to_y:g}" fill="none" '
            f'stroke="{GREY}"/>'
        )

    def cover(self, x: float, y: float) -> None:
        """Make the drawing at least as large as this place needs."""
        self.width, self.height = max(self.width, x), max(self.height, y)

    def svg(self) -> str:
        """The SVG's text."""
        width, height = (f"{size + MARGIN:.0f}" for size in (self.width, self.height))
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
                f'viewBox="0 0 {width} {height}" role="img" font-family="monospace" font-size="{SIZE}">',
                f"<title>{escaped(self.title)}</title>",
                f'<rect width="{width}" height="{height}" rx="6" fill="white" stroke="{PAPER}"/>',
                *self.parts,
                "</svg>",
            ]
        )


def escaped(text: str) -> str:
    """The text as XML has it; what XML cannot hold, such as other control characters, becomes a mark."""
    text = NO_XML.sub("\ufffd", text)
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def cut(text: str, most: int) -> str:
    """The text in one line, without its middle where it has more than ``most`` letters."""
    text = " ".join(text.split())
    if len(text) <= most:
        return text
    return f"{text[: most // 2]}\u2026{text[len(text) - (most - most // 2 - 1) :]}"
