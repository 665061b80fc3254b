"""A trace drawn, as text and as a PNG.

A rank's row shows the innermost span at each moment; communications that were started
and not yet finished have a row of their own below, for what is under way there may be hidden.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from .spans import RECEIVED, Span, Trace, is_started

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LETTERS = {
    "forward": "F",
    "backward": "B",
    "update": "U",
    "test": "T",
    "compute": "C",
    "send": "S",
    "recv": "R",
    "allreduce": "A",
    "post": "P",
    "wait": "W",
    "split": "X",
}
COLORS = {
    "forward": "#4c78a8",
    "backward": "#72b7b2",
    "update": "#54a24b",
    "test": "#bab0ac",
    "compute": "#9ecae9",
    "send": "#f2a93b",
    "recv": "#e45756",
    "allreduce": "#b279a2",
    "post": "#fbe0a6",
    "wait": "#a01c2c",
    "split": "#9d755d",
}
OTHER_COLORS = ("#6a51a3", "#8ca252", "#d6616b", "#637939", "#ce6dbd", "#393b79")
NUMBERS = re.compile(r" [\d,/-]+$")  # which one of many alike: a micro-batch, a chunk


def kind(what: str) -> str:
    """What a span is drawn as: started and blocking communications alike, "forward 3" as "forward"."""
    return "recv" if what in RECEIVED else NUMBERS.sub("", what.removeprefix("start_"))


def kinds(spans: Iterable[Span]) -> list[str]:
    """The kinds that occur, the known ones first."""
    found = {kind(s.what) for s in spans}
    return [*(k for k in LETTERS if k in found), *sorted(found - LETTERS.keys())]


def innermost(spans: Iterable[Span]) -> list[tuple[str, float, float]]:
    """(kind, start, stop) of disjoint pieces in order: at each moment the span that started last."""
    pieces: list[tuple[str, float, float]] = []
    open_spans: list[Span] = []
    now = float("-inf")

    def advance(to: float) -> None:
        nonlocal now
        while open_spans and now < to:
            top = open_spans[-1]
            if top.stop > now:
                pieces.append((kind(top.what), now, min(top.stop, to)))
                now = min(top.stop, to)
            if top.stop <= to:
                open_spans.pop()
        now = max(now, to)

    for span in sorted(spans, key=lambda s: (s.start, -s.stop)):
        advance(span.start)
        open_spans.append(span)
    advance(float("inf"))
    return [piece for piece in pieces if piece[1] < piece[2]]


def rows(trace: Trace) -> list[tuple[str, list[Span]]]:
    """A row for what each rank did, and one below for what it had under way, if anything."""
    found = []
    for rank in range(trace.size):
        mine = [s for s in trace.spans if s.rank == rank]
        found.append((f"rank {rank}", [s for s in mine if not is_started(s.what)]))
        if under_way := [s for s in mine if is_started(s.what)]:
            found.append(("under way", under_way))
    return found


def window(trace: Trace, start: float | None, stop: float | None) -> tuple[float, float]:
    first, last = trace.start if start is None else start, trace.stop if stop is None else stop
    if not trace.spans or not first < last:
        raise ValueError(f"there is nothing to draw between {first:g} s and {last:g} s")
    return first, last


def gantt(trace: Trace, width: int = 80, start: float | None = None, stop: float | None = None) -> str:
    """Text: each of ``width`` columns has the letter of what took most of its time; a dot is idle.

    ``start`` and ``stop`` choose a part of the trace, in its seconds.
    """
    first, last = window(trace, start, stop)
    names = kinds(trace.spans)
    letters = dict(zip(names, distinct_letters(names), strict=True))
    drawn = [(label, paint(spans, letters, width, first, last)) for label, spans in rows(trace)]
    margin = max(len(label) for label, _ in drawn)
    shown = [n for n in names if any(letters[n] in row for _, row in drawn)]
    lines = [f"{label:>{margin}} |{row}|" for label, row in drawn]
    lines.append(f"{'':{margin}}  0{duration(last - first):>{width - 1}}")
    return "\n".join([*lines, "  ".join([*(f"{letters[n]} {n}" for n in shown), ". idle"])])


def paint(spans: list[Span], letters: dict[str, str], width: int, first: float, last: float) -> str:
    column = (last - first) / width
    shares: list[dict[str, float]] = [{} for _ in range(width)]
    for name, start, stop in innermost(spans):
        left, right = max(start, first), min(stop, last)
        i = int((left - first) / column)
        while i < width and first + i * column < right:
            part = min(right, first + (i + 1) * column) - max(left, first + i * column)
            shares[i][name] = shares[i].get(name, 0.0) + max(part, 0.0)
            i += 1
    text = ""
    for share in shares:
        name = max(letters, key=lambda k: share.get(k, 0.0))
        idle = column - sum(share.values())
        text += letters[name] if share.get(name, 0.0) >= idle and share else "."
    return text


def distinct_letters(names: list[str]) -> list[str]:
    """A letter for each kind; where the kind has none of its own, the first of its name that is free."""
    used = {LETTERS[n] for n in names if n in LETTERS}
    found = []
    for name in names:
        spare = (c for c in name.upper() + "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789" if c.isalnum())
        letter = LETTERS.get(name) or next((c for c in spare if c not in used), "#")
        used.add(letter)
        found.append(letter)
    return found


def duration(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def time_unit(seconds: float) -> tuple[float, str]:
    """How many of a unit a second is, and its name, where so many seconds are 1 or more of it."""
    return next(((s, u) for s, u in ((1.0, "s"), (1e3, "ms")) if seconds * s >= 1), (1e6, "us"))


def amount(nbytes: float) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if nbytes >= size:
            return f"{nbytes / size:.3g} {unit}"
    return f"{nbytes:.0f} bytes"


def draw(trace: Trace, file: Path, *, title: str = "", start: float | None = None, stop: float | None = None):
    """A PNG: a bar for each rank, and thin ones below it for what was under way."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    first, last = window(trace, start, stop)
    scale, unit = time_unit(last - first)
    names = kinds(trace.spans)
    others = [name for name in names if name not in COLORS]
    colors = COLORS | {name: OTHER_COLORS[i % len(OTHER_COLORS)] for i, name in enumerate(others)}
    figure = Figure(figsize=(11, 1.6 + 0.62 * trace.size), layout="constrained")
    axes = figure.subplots()
    shown: set[str] = set()

    def bars(pieces: list[tuple[str, float, float]], bottom: float, height: float) -> None:
        for name in names:
            inside = [(max(a, first), min(b, last)) for n, a, b in pieces if n == name]
            spots = [((a - first) * scale, (b - a) * scale) for a, b in inside if a < b]
            # A pale edge parts neighbours, but would hide what is narrower than itself.
            edges = [0.6 if w > 0.004 * (last - first) * scale else 0.0 for _, w in spots]
            axes.broken_barh(
                spots, (bottom, height), facecolors=colors[name], edgecolors="white", linewidths=edges
            )
            shown.update({name} if spots else ())

    for rank in range(trace.size):
        mine = [s for s in trace.spans if s.rank == rank]
        bars(innermost(s for s in mine if not is_started(s.what)), rank - 0.22, 0.44)
        lanes = side_by_side([s for s in mine if is_started(s.what)])
        for i, lane in enumerate(lanes):
            bars(lane, rank + 0.25 + i * 0.2 / len(lanes), 0.2 / len(lanes))
    axes.set(
        xlim=(0, (last - first) * scale),
        ylim=(trace.size - 0.45, -0.35),
        xlabel=f"time ({unit})" + ("; thin bars: started and not yet finished" if has_started(trace) else ""),
        yticks=range(trace.size),
        yticklabels=[f"rank {rank}" for rank in range(trace.size)],
        title=title or summary(trace),
    )
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", alpha=0.3, linewidth=0.6)
    axes.set_axisbelow(True)
    handles = [Patch(color=colors[name], label=name) for name in names if name in shown]
    figure.legend(handles=handles, loc="outside right center", frameon=False)
    save(figure, file)


def save(figure: Figure, file: Path) -> None:
    """Write a PNG, whole or not at all."""
    part = file.with_name(f".{file.name}.{os.getpid()}.part.png")
    figure.savefig(part, dpi=120)
    os.replace(part, file)


def has_started(trace: Trace) -> bool:
    return any(is_started(s.what) for s in trace.spans)


def side_by_side(spans: list[Span]) -> list[list[tuple[str, float, float]]]:
    """Lanes that hold all spans so that no two of a lane overlap."""
    lanes: list[list[tuple[str, float, float]]] = []
    for span in sorted(spans, key=lambda s: s.start):
        lane = next((lane for lane in lanes if lane[-1][2] <= span.start), None)
        if lane is None:
            lanes.append(lane := [])
        lane.append((kind(span.what), span.start, span.stop))
    return lanes


def summary(trace: Trace) -> str:
    """Ranks, messages, bytes, and the share of the time that ranks were blocked in communication."""
    messages, nbytes = trace.sent()
    whole = trace.size * (trace.stop - trace.start)
    blocked = sum(trace.exposed(rank) for rank in range(trace.size)) / whole if whole else 0.0
    sent = f"{messages:,} messages, {amount(nbytes)}"
    ranks = "1 rank" if trace.size == 1 else f"{trace.size} ranks"
    return f"{ranks}: {sent}; {blocked:.0%} of the time in communication"
