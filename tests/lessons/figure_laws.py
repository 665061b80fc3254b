"""What every figure keeps: one palette, series that differ by more than color, words that are apart."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import Collection
from matplotlib.colors import to_rgb, to_rgba
from matplotlib.contour import ContourSet
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.text import Text

from minigrad import figures

NEUTRAL = ["#000000", "#FFFFFF", "#ECECEC", figures.INK, figures.GREY, figures.PAPER, figures.SAND]
PALETTE = [*figures.COLORS, figures.YELLOW, *NEUTRAL, *figures.TEXT.values()]
LINES_APART, AREAS_APART = 30, 5  # in L*, of 100: what two lines, and two areas in a key, differ by in grey


def lightness(color: Any) -> float:
    """CIE L* of a color, from 0 (black) to 100 (white): all that a grey print keeps."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(color)]
    y = float(np.dot(linear, (0.2126, 0.7152, 0.0722)))
    return 116 * y ** (1 / 3) - 16 if y > 0.008856 else 903.3 * y


def contrast_with_white(color: Any) -> float:
    """The ratio of the Web Content Accessibility Guidelines; 4.5 is their least for text."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(color)]
    return 1.05 / (float(np.dot(linear, (0.2126, 0.7152, 0.0722))) + 0.05)


def in_palette(color: Any) -> bool:
    """Whether a color is one of the palette, or a paler shade of one."""
    white, rgb = np.ones(3), np.array(to_rgb(color))
    for base in map(np.array, map(to_rgb, PALETTE)):
        rest = white - base
        share = float((white - rgb) @ rest / (rest @ rest)) if rest.any() else 0.0
        if -1e-9 <= share <= 1 + 1e-9 and abs(white - share * rest - rgb).max() < 0.006:
            return True
    return False


def colors_of(artist: Artist) -> Iterator[Any]:
    """The visible colors of a line, an area or a text."""
    if isinstance(artist, Line2D | Text):
        yield artist.get_color()
    elif isinstance(artist, Patch):
        yield from (c for c in (artist.get_facecolor(), artist.get_edgecolor()) if to_rgba(c)[3] > 0)
    elif isinstance(artist, Collection) and not isinstance(artist, ContourSet):
        colors = [np.reshape(c, (-1, 4)) for c in (artist.get_facecolor(), artist.get_edgecolor())]
        yield from (color for color in np.concatenate(colors) if color[3] > 0)


def foreign_colors(figure: Figure) -> Iterator[str]:
    for artist in figure.findobj():
        if artist.get_visible():
            for color in colors_of(artist):
                if not in_palette(color):
                    yield f"{type(artist).__name__} has the color {color}, which is not of the palette"


def form_of(line: Line2D) -> tuple[object, ...]:
    """What tells a line apart besides its color: its dash, and its markers."""
    style = line.get_linestyle()
    dash = getattr(line, "_unscaled_dash_pattern", style) if style not in ("-", "None") else style
    return dash, line.get_marker()


def lines_alike(axes: Axes) -> Iterator[str]:
    """Lines of different colors that a grey print does not tell apart."""
    drawn = [line for line in axes.get_lines() if line.get_alpha() is None]  # pale ones go with a full one
    lines = {(line.get_color(), form_of(line)) for line in drawn if np.shape(line.get_xydata())[0] > 1}
    for (one, form), (other, other_form) in combinations(sorted(lines, key=str), 2):
        near = abs(lightness(one) - lightness(other)) < LINES_APART
        if one != other and form == other_form and near:
            yield f"{axes.get_title()!r}: lines of {one} and {other} differ by color alone ({form})"


def areas_alike(figure: Figure) -> Iterator[str]:
    """Areas in a key that a grey print does not tell apart."""
    for legend in figure.findobj(Legend):
        assert isinstance(legend, Legend)
        looks = [(p.get_facecolor(), p.get_hatch()) for p in legend.get_patches() if p.get_fill()]
        for (one, hatch), (other, other_hatch) in combinations(looks, 2):
            if hatch == other_hatch and abs(lightness(one) - lightness(other)) < AREAS_APART:
                yield f"areas of {one} and {other} in a key differ by color alone"


def words_in_the_way(figure: Figure) -> Iterator[str]:
    """Texts that lie on one another, or that leave the figure."""
    figure.draw_without_rendering()
    unseen = {text for axes in figure.axes for text in unseen_words(axes)}
    texts = [t for t in figure.findobj(Text) if isinstance(t, Text) and t.get_visible() and t not in unseen]
    written = [text for text in texts if text.get_text().strip()]
    boxes = [(text.get_text(), Text.get_window_extent(text)) for text in written]  # without arrows
    whole = figure.bbox
    for text, box in boxes:
        if min(box.x0, box.y0) < -1 or box.x1 > whole.x1 + 1 or box.y1 > whole.y1 + 1:
            yield f"the text {text!r} leaves the figure"
    for (one, a), (other, b) in combinations(boxes, 2):
        wide, high = min(a.x1, b.x1) - max(a.x0, b.x0), min(a.y1, b.y1) - max(a.y0, b.y0)
        if wide > 2 and high > 3:
            yield f"the texts {one!r} and {other!r} lie on one another"


def unseen_words(axes: Axes) -> Iterator[Text]:
    """Texts that exist and are not drawn: of an axes without axis lines, of ticks outside of the limits."""
    if not axes.get_visible():
        yield from (text for text in axes.findobj(Text) if isinstance(text, Text))
    for axis in (axes.xaxis, axes.yaxis):
        texts = {axis.label, axis.offsetText}
        low, high = sorted(axis.get_view_interval())
        for tick in [*axis.get_major_ticks(), *axis.get_minor_ticks()]:
            if low - 1e-9 * abs(low) <= tick.get_loc() <= high + 1e-9 * abs(high):
                texts |= {tick.label1, tick.label2}
        shown = axes.axison and axis.get_visible()
        yield from (t for t in axis.findobj(Text) if isinstance(t, Text) and not (shown and t in texts))


def unreadable_words(figure: Figure) -> Iterator[str]:
    """Texts in a color too pale for the white behind them."""
    for text in figure.findobj(Text):
        assert isinstance(text, Text)
        pale = 1 < contrast_with_white(text.get_color()) < 4.5
        if text.get_text().strip() and pale and text.get_color() != "white":
            yield f"the text {text.get_text()!r} has the color {text.get_color()}, too pale to be read"


def faults(figure: Figure) -> list[str]:
    """What is wrong with the look of a figure, a sentence each."""
    alike = (fault for axes in figure.axes for fault in lines_alike(axes))
    laws = (foreign_colors(figure), alike, areas_alike(figure), words_in_the_way(figure))
    return [*dict.fromkeys(fault for law in (*laws, unreadable_words(figure)) for fault in law)]
