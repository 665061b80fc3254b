"""Pictures with alternative text: the matplotlib backend of the lessons, ``module://minigrad_course.shared.figure_canvas``.

A PNG that it writes has the figure's own words in its metadata, under "Description". In a notebook the cell
that saves a figure also shows it, whether pyplot made the figure or not.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from matplotlib.axes import Axes
from matplotlib.backend_bases import register_backend
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from .svg_picture import SvgPicture


class FigureCanvas(FigureCanvasAgg):
    """Draws as Agg does; its PNG describes itself."""

    def print_png(
        self, filename_or_obj: str | Path | IO[bytes], *, metadata=None, pil_kwargs=None, **settings: object
    ) -> None:
        """Write the PNG; ``settings`` are those of other formats."""
        text = description(self.figure)
        metadata = {"Description": text, **(metadata or {})}
        super().print_png(filename_or_obj, metadata=metadata, pil_kwargs=pil_kwargs)
        if isinstance(filename_or_obj, str | Path):
            show_in_notebook(Path(filename_or_obj), text)


register_backend("png", FigureCanvas)  # for figures without pyplot, which have no canvas of their own


def description(figure: Figure) -> str:
    """The words in a figure, as sentences: its title, then of each panel title, axes, and legend; or all."""
    words = list(dict.fromkeys(part for part in sentences(figure) if part)) or [
        in_one_line(text.get_text()) for axes in figure.axes for text in axes.texts
    ]
    return ". ".join(part.rstrip(" .") for part in words) + "."


def description_in(file: Path) -> str:
    """The title of an SVG, or the description in the metadata of a PNG; without it the words of its name."""
    if file.suffix == ".svg":
        return SvgPicture.read(file).title
    with Image.open(file) as image:
        return str(image.info.get("Description") or file.stem.replace("_", " "))


def sentences(figure: Figure) -> Iterator[str]:
    yield in_one_line(figure.get_suptitle())
    for axes in figure.axes:
        yield from of_axes(axes)
    labels = [text.get_text() for legend in figure.legends for text in legend.get_texts()]
    yield "Colors: " + ", ".join(labels) if labels else ""
    for part in figure.subfigs:
        yield in_one_line(part.get_suptitle())


def of_axes(axes: Axes) -> Iterator[str]:
    yield from (in_one_line(axes.get_title(place)) for place in ("center", "left", "right"))
    x, y = in_one_line(axes.get_xlabel()), in_one_line(axes.get_ylabel())
    yield f"{y} over {x}" if x and y else x or y
    legend = axes.get_legend()
    yield "Lines: " + ", ".join(in_one_line(text.get_text()) for text in legend.get_texts()) if legend else ""


def in_one_line(text: str) -> str:
    return " ".join(text.split())


def show_in_notebook(file: Path, text: str) -> None:
    """Display the picture where IPython runs this code."""
    ipython = sys.modules.get("IPython")
    if ipython is not None and ipython.get_ipython() is not None:
        ipython.display.display(ipython.display.Image(filename=str(file), alt=text, embed=True))
