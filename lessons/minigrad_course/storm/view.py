"""``minigrad storm``: one storm as a table and a picture, or many in a count."""

from __future__ import annotations

import shlex
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

from backends.cli.console import print_paths
from backends.words import counted
from minigrad.figures import save

from .event import Event
from .fault import KINDS
from .picture import figure_of
from .storm import Report, Storm


def places_of(text: str | None, storm: Storm) -> list[int] | None:
    """``--only``: the places of faults in the storm's list, from 0; "none" for none; None for all of them."""
    if text is None:
        return None
    words = [] if text == "none" else text.split(",")
    if not all(word.isdecimal() and int(word) < len(storm.faults) for word in words):
        last = len(storm.faults) - 1
        raise ValueError(
            f"--only takes places of faults as in 0,2, or none; storm {storm.seed} has the faults 0 to {last}"
            f", got {text!r}"
        )
    return [int(word) for word in words]


def show_one(storm: Storm, picture: Path, console: Console) -> bool:
    """Run a storm, print its table, and draw it; whether it was safe and live."""
    report = storm.run()
    console.print(f"storm {storm.seed}: {storm.job}", highlight=False, markup=False)
    console.print(table_of(report))
    save(figure_of(report), picture)
    print_paths(console, picture=picture)
    if report.faults.total() < len(storm.faults):
        words = "happened; the others came after the end, or where there was nothing to hit"
        console.print(f"{report.share} {words}", highlight=False, soft_wrap=True)
    console.print(verdict_of(report), highlight=False, markup=False, soft_wrap=True)
    return report.problem is None


def table_of(report: Report) -> Table:
    """The events in the order of time; steps that follow one another share a row."""
    table = Table("time (s)", "where", "event")
    table.columns[0].justify = "right"
    for steps, events in groupby(report.events, key=lambda event: event.kind == "step"):
        for event in [steps_in_one(list(events))] if steps else events:
            where = "cluster" if event.rank is None else f"rank {event.rank}"
            style = {"fault": "red", "error": "red", "message": "yellow", "end": "green"}.get(event.kind)
            table.add_row(f"{event.at:.3f}", where, event.text, style=style)
    return table


def steps_in_one(events: list[Event]) -> Event:
    """The last one, with the first one's number."""
    first, last = events[0], events[-1]
    if first is last:
        return first
    return last._replace(text=f"steps{first.text.partition(':')[0][4:]} to{last.text[4:]}")


def verdict_of(report: Report) -> str:
    """What was wrong, or that nothing was."""
    if report.problem is not None:
        return report.problem
    return (
        "safe and live: the undisturbed run's losses and weights, bit for bit, after "
        f"{counted(report.restarts, 'restart')} and {report.seconds:,.0f} simulated seconds"
    )


def run_many(storms: Iterable[Storm], count: int, console: Console) -> Storm | None:
    """Run storms until one fails, which is returned; print the counts, after an interrupt too."""
    start, counts = time.perf_counter(), Counts()
    hidden = not console.is_interactive
    try:
        for storm in track(storms, "storms", count, console=console, transient=True, disable=hidden):
            report = storm.run()
            counts.add(report)
            if report.problem is not None:
                return storm
        return None
    finally:
        console.print(counts.table())
        seconds = f"{time.perf_counter() - start:.1f} s"
        words = f"{counted(counts.storms, 'storm')}, {counted(counts.restarts, 'restart')}, {seconds}"
        console.print(words, highlight=False)


@dataclass
class Counts:
    """How many storms there were, on which strategies, with how many restarts and faults of each kind."""

    storms: int = 0
    restarts: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    strategies: Counter[str] = field(default_factory=Counter)

    def add(self, report: Report) -> None:
        self.storms += 1
        self.restarts += report.restarts
        self.faults += report.faults
        self.strategies[report.storm.job.strategy] += 1

    def table(self) -> Table:
        table = Table(show_header=False)
        for kind in KINDS:
            table.add_row(kind, f"{self.faults[kind]:,}")
        table.add_section()
        for strategy, number in sorted(self.strategies.items()):
            table.add_row(strategy, counted(number, "storm"))
        return table


def report_failure(storm: Storm, options: list[str], console: Console) -> None:
    """Print the fewest faults with which a storm fails, what is wrong then, and how to see it again."""
    places = storm.fewest_faults()
    smallest = storm.only(places)
    console.print(f"storm {storm.seed} fails; of its {len(storm.faults)} faults these are enough:")
    for place in places:
        fault = storm.faults[place]
        console.print(f"  {place}: at {fault.at:.3f} s, {fault.text(storm.job.ranks)}", highlight=False)
    only = ",".join(map(str, places)) or "none"
    command = ["minigrad", "storm", "--seed", str(storm.seed), *options, "--only", only]
    console.print(f"again: {shlex.join(command)}", highlight=False, soft_wrap=True)
    console.print(smallest.run().problem or "", highlight=False, markup=False, soft_wrap=True)
