"""A storm as a picture: a row for each rank, what its processes did over time, and the faults.

Lecture section: parallelism at scale, what fails.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Any

from backends.words import counted
from minigrad.figures import BLUE, GREEN, GREY, INK, RED, SAND, SKY, STYLE, points

from .storm import Report

if TYPE_CHECKING:
    from matplotlib.figure import Figure

QUIET, SHORT = 20.0, 5.0  # of more seconds than QUIET without an event only SHORT are drawn


class Axis:
    """Where a time is drawn: as it is, but for long times in which nothing happens."""

    def __init__(self, times: list[float]):
        self.times = sorted(set(times))
        self.gaps: list[tuple[float, float]] = []
        self.places = [0.0]
        for start, stop in zip(self.times, self.times[1:], strict=False):
            quiet = stop - start > QUIET
            self.gaps += [(start, stop)] * quiet
            self.places.append(self.places[-1] + (SHORT if quiet else stop - start))

    def place(self, time: float) -> float:
        """The place of a time, between the first and the last one."""
        i = min(max(bisect_right(self.times, time) - 1, 0), len(self.times) - 2)
        start, stop = self.times[i : i + 2]
        share = min(max((time - start) / (stop - start), 0.0), 1.0)
        return self.places[i] + share * (self.places[i + 1] - self.places[i])


def figure_of(report: Report) -> Figure:
    """A box for each process: it loads, then it trains; above it the faults, below it the checkpoints."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch, Rectangle

    ranks = report.storm.job.ranks
    faults = [event for event in report.events if event.kind == "fault"]
    checkpoints = [event for event in report.events if event.kind == "checkpoint"]
    axis = Axis([0.0, report.seconds, *(event.at for event in report.events if event.at <= report.seconds)])
    with rc_context(STYLE):
        figure = Figure(figsize=(11, 2.4 + 0.55 * ranks + 0.22 * len(faults)), layout="constrained")
        axes = figure.subplots()
        for life in report.lives:
            loaded = life.stop if life.trains is None else life.trains
            for start, stop, look in ((life.start, loaded, LOADS), (loaded, life.stop, TRAINS)):
                left, right = axis.place(start), axis.place(stop)
                box = Rectangle((left, life.rank - 0.28), right - left, 0.56, ec="white", lw=0.6, **look)
                axes.add_patch(box)
            if life.end in ("killed", "failed"):
                at = axis.place(life.stop)
                axes.plot([at, at], [life.rank - 0.34, life.rank + 0.34], color=INK, lw=2.5)
        for start, stop in axis.gaps:
            left, right = axis.place(start), axis.place(stop)
            axes.axvspan(left, right, fc="white", ec=SAND, hatch="//", lw=0, alpha=0.75, zorder=3)
            words = f"{stop - start:,.0f} s"
            axes.text(
                (left + right) / 2,
                ranks - 0.42,
                words,
                ha="center",
                va="center",
                size=8,
                color=GREY,
                zorder=4,
            )
        for number, event in enumerate(faults):
            at, height = axis.place(event.at), -0.75 - 0.4 * (len(faults) - 1 - number)
            axes.plot([at, at], [height, ranks - 0.5], color=RED, lw=1.0, ls=":", zorder=2)
            axes.plot([at], [height], zorder=5, clip_on=False, **points(RED))
            right = at > 0.6 * axis.places[-1]
            words = f"{event.at:.1f} s: {event.text}"
            place: dict[str, Any] = {"xytext": (-8 if right else 8, 0), "textcoords": "offset points"}
            axes.annotate(
                words, (at, height), ha="right" if right else "left", va="center", color=INK, **place
            )
        if checkpoints:
            axes.plot(
                [axis.place(e.at) for e in checkpoints],
                [e.rank or 0 for e in checkpoints],
                zorder=5,
                **points(GREEN),
            )
        axes.set(xlim=(0, axis.places[-1]), ylim=(ranks - 0.3, -1.1 - 0.4 * max(len(faults) - 1, 0)))
        axes.set_yticks(range(ranks), [f"rank {rank}" for rank in range(ranks)])
        times = ticks(axis)
        axes.set_xticks([axis.place(time) for time in times], [f"{time:,.0f}" for time in times])
        axes.set_xlabel("simulated time (s)")
        axes.set_title(title_of(report), loc="left")
        axes.spines["left"].set_visible(False)
        axes.tick_params(axis="y", length=0)
        keys = [
            Patch(label="loads", **LOADS),
            Patch(label="trains", **TRAINS),
            Line2D([], [], color=INK, lw=2.5, label="a process fails"),
            Line2D([], [], label="a checkpoint has its name", **points(GREEN)),
            Line2D([], [], label="a fault begins", **points(RED)),
        ]
        figure.legend(handles=keys, loc="outside lower center", ncols=5, fontsize=10)
    return figure


LOADS: dict[str, Any] = {"fc": SKY, "hatch": "////"}
TRAINS: dict[str, Any] = {"fc": BLUE}


def ticks(axis: Axis) -> list[float]:
    """About ten times at equal distances on the picture, none within a time that is drawn shorter."""
    distance = max(axis.places[-1] / 10, 1.0)
    times, last = [], -distance
    for time in axis.times:
        quiet = any(start < time < stop for start, stop in axis.gaps)
        if not quiet and axis.place(time) - last >= distance:
            times.append(time)
            last = axis.place(time)
    return times


def title_of(report: Report) -> str:
    storm = report.storm
    verdict = report.problem or "safe and live"
    job = f"{storm.job.strategy} on {counted(storm.job.ranks, 'rank')}"
    restarts = counted(report.restarts, "restart")
    return f"storm {storm.seed}: {job}, {report.share}, {restarts}; {verdict[:48]}"
