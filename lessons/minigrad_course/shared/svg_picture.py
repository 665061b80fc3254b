"""Pictures that objects draw of themselves as figures of a lesson: a tape, a model, a schedule, a proof."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple, Protocol
from xml.etree import ElementTree

from minigrad.files import replacement


class Drawn(Protocol):
    """What a notebook shows as a picture."""

    def _repr_svg_(self) -> str: ...


class SvgPicture(NamedTuple):
    """What a page needs of a file: its size in pixels, and in words what it shows."""

    width: int
    height: int
    title: str

    @classmethod
    def read(cls, file: Path) -> SvgPicture:
        root = ElementTree.fromstring(file.read_text(encoding="utf-8"))
        title = root.findtext("{http://www.w3.org/2000/svg}title", "")
        return cls(int(root.attrib["width"]), int(root.attrib["height"]), title)


def save_svg(drawn: Drawn, file: Path) -> None:
    """Write the picture that ``drawn`` makes of itself, and show it where a notebook runs this code."""
    with replacement(file) as part:
        part.write_text(drawn._repr_svg_(), encoding="utf-8")
    ipython = sys.modules.get("IPython")
    if ipython is not None and ipython.get_ipython() is not None:
        ipython.display.display(drawn)
