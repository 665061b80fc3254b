"""Drawings of a trace, as text and as a PNG: a row for each rank, a bar for each span.

``text_runs`` and ``figure_of`` draw any spans, each as its label or color says. ``gantt`` and ``draw`` show
what kind of work each rank did: a rank's row shows the innermost span at each moment. Communications that
were started and not yet finished have another row below, because computing may hide them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import cycle, groupby, pairwise
from pathlib import Path
from string import ascii_uppercase, digits
from typing import TYPE_CHECKING, Any, NamedTuple

from minigrad import figures

from ..words import counted
from .spans import COLLECTIVES, RECEIVED, Span, Trace, is_started

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LETTERS = {
    **{"forward": "F", "backward": "B", "update": "U", "test": "T", "compute": "C", "send": "S"},
    **{"recv": "R", "allreduce": "A", "post": "P", "wait": "W", "split": "X"},
}


class Fill(NamedTuple):
    """How a box looks: its color, and the pattern of lines on it, as matplotlib writes it."""

    color: Any
    hatch: str = ""


FILLS = {
    "forward": Fill(figures.FORWARD),
    "backward": Fill(figures.BACKWARD),
    "weight": Fill(figures.WEIGHTS, ".."),
    "update": Fill(figures.INK),
    "test": Fill(figures.SAND),
    "compute": Fill(figures.COMPUTING, "\\\\\\\\"),
    "send": Fill(figures.COMMUNICATION, "////"),
    "recv": Fill(figures.COMMUNICATION, "...."),
    "allreduce": Fill(figures.COMMUNICATION),
    "post": Fill(figures.COMMUNICATION, "||||"),
    **{
        name: Fill(figures.COMMUNICATION, hatch)
        for name, hatch in zip(COLLECTIVES[1:], ("\\\\", "--", "++", "oo", "OO", "**", "xx"), strict=True)
    },
    "wait": Fill(figures.WAITING, "xxxx"),
    "split": Fill(figures.SAND, "xx"),
}
WORDS = {  # in the key of a picture, for kinds whose names do not say it
    **{"test": "test (accuracy)", "post": "post (starting a message)", "wait": "wait (for a message)"},
    "split": "split (a new group of ranks)",
}
OTHER_COLORS = (figures.SAND, figures.GREEN, figures.SKY)
OTHER_FILLS = [Fill(color, hatch) for hatch in ("oo", "++") for color in OTHER_COLORS]
IDLE = Fill("#ECECEC")
NUMBERS = re.compile(r" [\d,/-]+$")  # of a micro-batch or a chunk


def kind(what: str) -> str:
    """The name under which a span is drawn: "recv" also for "start_recv", "forward" for "forward 3"."""
    return "recv" if what in RECEIVED else NUMBERS.sub("", what.removeprefix("start_"))


def kinds(spans: Iterable[Span]) -> list[str]:
    """The kinds of the spans, those with a letter of their own first."""
    names = {kind(s.what) for s in spans}
    return [*(k for k in LETTERS if k in names), *sorted(names - LETTERS.keys())]


def innermost(spans: Iterable[Span]) -> list[Span]:
    """Disjoint pieces of the spans, in order: at each moment the span that started last."""
    coming = sorted(spans, key=lambda s: (s.start, -s.stop))[::-1]  # the next one is the last
    open_spans: list[Span] = []
    pieces = []
    for start, stop in pairwise(sorted({t for span in coming for t in (span.start, span.stop)})):
        while coming and coming[-1].start == start:
            open_spans.append(coming.pop())
        while open_spans and open_spans[-1].stop <= start:
            open_spans.pop()
        if open_spans:
            pieces.append(open_spans[-1]._replace(start=start, stop=stop))
    return pieces


def window(trace: Trace, start: float | None, stop: float | None) -> tuple[float, float]:
    first, last = trace.start if start is None else start, trace.stop if stop is None else stop
    if not trace.spans or not first < last:
        raise ValueError(f"there is nothing to draw between {first:g} s and {last:g} s")
    return first, last


# Text


def text_runs(
    spans: Iterable[Span], label: Callable[[Span], str], first: float, column: float, width: int
) -> list[tuple[str, int]]:
    """A row of ``width`` columns as (label, number of columns) pairs, with the label "" for idle columns.

    A column stands for ``column`` seconds, and has the label that took most of them. ``spans`` are disjoint.
    """
    shares: list[dict[str, float]] = [{} for _ in range(width)]
    for span in spans:
        i = max(int((span.start - first) / column), 0)
        while i < width and first + i * column < span.stop:
            part = min(span.stop, first + (i + 1) * column) - max(span.start, first + i * column)
            shares[i][label(span)] = shares[i].get(label(span), 0.0) + max(part, 0.0)
            i += 1

    def label_of(share: dict[str, float]) -> str:
        most = max(share, key=share.__getitem__, default="")
        return most if share and share[most] >= column - sum(share.values()) else ""

    return [(text, len(list(columns))) for text, columns in groupby(map(label_of, shares))]


def gantt(trace: Trace, width: int = 80, start: float | None = None, stop: float | None = None) -> str:
    """Text: each of ``width`` columns has the letter of what took most of its time; a dot is idle.

    ``start`` and ``stop`` choose a part of the trace, in its seconds.
    """
    first, last = window(trace, start, stop)
    letters = distinct_letters(kinds(trace.spans))
    rows = []
    for rank in range(trace.size):
        mine = [s for s in trace.spans if s.rank == rank]
        rows.append((f"rank {rank}", [s for s in mine if not is_started(s.what)]))
        if started := [s for s in mine if is_started(s.what)]:
            rows.append(("under way", started))
    margin = max(len(name) for name, _ in rows)
    lines = []
    for name, spans in rows:
        pieces, column = innermost(spans), (last - first) / width
        runs = text_runs(pieces, lambda s: letters[kind(s.what)], first, column, width)
        lines.append(f"{name:>{margin}} |{''.join((letter or '.') * n for letter, n in runs)}|")
    drawn = "".join(line[margin:] for line in lines)
    shown = [f"{letter} {name}" for name, letter in letters.items() if letter in drawn]
    lines.append(f"{'':{margin}}  0{duration(last - first):>{width - 1}}")
    return "\n".join([*lines, "  ".join([*shown, ". idle"])])


def distinct_letters(names: list[str]) -> dict[str, str]:
    """A letter for each kind; where the kind has none of its own, the first of its name that is free."""
    letters = {name: LETTERS[name] for name in names if name in LETTERS}
    for name in (name for name in names if name not in LETTERS):
        spare = (c for c in name.upper() + ascii_uppercase + digits if c.isalnum())
        letters[name] = next((c for c in spare if c not in letters.values()), "#")
    return letters


def duration(seconds: float) -> str:
    units = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"))
    size, unit = next((one for one in units if seconds >= one[0]), (1e-9, "ns"))
    return f"{seconds / size:.3g} {unit}"


def amount(nbytes: float) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if nbytes >= size:
            return f"{nbytes / size:.3g} {unit}"
    return f"{nbytes:.0f} bytes"


def summary(trace: Trace) -> str:
    """Ranks, messages, bytes, and the share of the time that ranks were blocked in communication."""
    messages, nbytes = trace.sent()
    whole = trace.size * (trace.stop - trace.start)
    blocked = sum(trace.exposed(rank) for rank in range(trace.size)) / whole if whole else 0.0
    sent = f"{messages:,} messages, {amount(nbytes)}"
    return f"{counted(trace.size, 'rank')}: {sent}; {blocked:.0%} of the time in communication"


# Pictures


class Panel(NamedTuple):
    """A drawing of ``ranks`` rows from ``first`` to ``last`` seconds.

    A bar is (middle, height, spans): rank 0's row is the one around 0, and has height 1. Spans overlap the
    drawn time.
    """

    title: str
    ranks: int
    first: float
    last: float
    bars: Sequence[tuple[float, float, Sequence[Span]]]

    @property
    def scale(self) -> tuple[float, str]:
        """The factor from seconds to the unit of the time axis, and the unit's name."""
        units = ((1.0, "s"), (1e3, "ms"))
        return next(((s, unit) for s, unit in units if (self.last - self.first) * s >= 1), (1e6, "us"))


def figure_of(
    panels: Sequence[Panel],
    fill: Callable[[Span], Fill],
    legend: Mapping[str, Fill],
    *,
    title: str = "",
    width: float = 11,
    row: float = 0.34,
) -> Figure:
    """The panels above one another, each as wide as the figure; ``width`` and a ``row``'s height in inches.

    Each span is a box, whose look ``legend`` explains.
    """
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch, Rectangle

    height = 0.6 + sum(0.8 + row * panel.ranks for panel in panels)
    figure = Figure(figsize=(width, height), layout="constrained")
    if title:
        figure.suptitle(title, fontsize=12)
    heights = [1 + panel.ranks for panel in panels]
    rows = figure.subplots(len(panels), squeeze=False, height_ratios=heights).flat
    for axes, panel in zip(rows, panels, strict=True):
        scale, unit = panel.scale
        end = (panel.last - panel.first) * scale
        for rank in range(panel.ranks):
            axes.broken_barh([(0, end)], (rank - 0.42, 0.84), facecolors=IDLE.color)
        for middle, thickness, spans in panel.bars:
            for span in spans:
                start, stop = max(span.start, panel.first), min(span.stop, panel.last)
                length = (stop - start) * scale
                corner = (start - panel.first) * scale, middle - thickness / 2
                edge = 0.6 if length > 0.004 * end else 0.0  # it would hide what is narrower than itself
                color, hatch = fill(span)
                look = {"fc": color, "ec": "white", "linewidth": edge, "hatch": hatch}
                axes.add_patch(Rectangle(corner, length, thickness, **look))
        axes.set(xlim=(0, end), ylim=(panel.ranks - 0.5, -0.5), xlabel=f"time ({unit})")
        axes.set_yticks(range(panel.ranks), [f"rank {rank}" for rank in range(panel.ranks)])
        axes.set_title(panel.title, loc="left", fontsize=11)
        axes.spines[:].set_visible(False)
        axes.tick_params(axis="y", length=0)
    looks = (*legend.items(), ("idle", IDLE))
    handles = [Patch(fc=look.color, ec="white", lw=0, hatch=look.hatch, label=name) for name, look in looks]
    columns = min(len(handles), int(width / 2.1))
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, frameon=False, fontsize=10)
    return figure


def panel_of(trace: Trace, title: str = "", start: float | None = None, stop: float | None = None) -> Panel:
    """A bar for each rank, and thin ones below it for what was started and not yet finished."""
    first, last = window(trace, start, stop)
    bars = []
    for rank in range(trace.size):
        mine = [s for s in trace.spans if s.rank == rank and s.start < last and s.stop > first]
        bars.append((rank - 0.12, 0.52, innermost(s for s in mine if not is_started(s.what))))
        lanes = side_by_side([s for s in mine if is_started(s.what)])
        height = 0.24 / max(len(lanes), 1)
        bars += [(rank + 0.16 + (i + 0.5) * height, height, lane) for i, lane in enumerate(lanes)]
    thin = "; thin bars: started and not yet finished" if any(is_started(s.what) for s in trace.spans) else ""
    return Panel((title or summary(trace)) + thin, trace.size, first, last, bars)


def figure_of_kinds(panels: Sequence[Panel]) -> Figure:
    """The panels above one another; what kind of work a box is, its look says."""
    shown = kinds(span for panel in panels for *_, spans in panel.bars for span in spans)
    others = cycle(OTHER_FILLS)
    fills = {name: FILLS[name] if name in FILLS else next(others) for name in shown}
    legend = {WORDS.get(name, name): fill for name, fill in fills.items()}
    return figure_of(panels, lambda span: fills[kind(span.what)], legend, row=0.62)


def draw(trace: Trace, file: Path, *, title: str = "", start: float | None = None, stop: float | None = None):
    """A PNG of the trace, or of a part of it, in its seconds: a row for each rank."""
    figures.save(figure_of_kinds([panel_of(trace, title, start, stop)]), file)


def side_by_side(spans: list[Span]) -> list[list[Span]]:
    """Lanes that hold all spans so that no two of a lane overlap."""
    lanes: list[list[Span]] = []
    for span in sorted(spans, key=lambda s: s.start):
        lane = next((lane for lane in lanes if lane[-1].stop <= span.start), None)
        if lane is None:
            lanes.append(lane := [])
        lane.append(span)
    return lanes
