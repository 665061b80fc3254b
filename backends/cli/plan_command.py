"""``minigrad plan``: the grids of ranks that can train a net, best first.

Lecture section: what a cluster would do. Lesson: 15_scale.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, replace
from typing import Any

from rich.console import Console
from rich.table import Table

from minigrad.models import NETS, Net

from ..comm.collectives.link import Link
from ..comm.timeline import duration
from ..launch.launch import check_room, free_memory
from ..planner import Estimate, Hardware, Layout, best_first
from ..planner.sizes_of_net import sizes_of
from ..process.cores import cores
from ..words import counted
from .console import new_console
from .net_settings import NetSettings
from .next_command import NextCommand, arguments
from .options import ParallelOptions, checked_by, positive
from .parallel import ParallelConfig
from .plan_measurement import STEPS, PlanMeasurement
from .run_folder import Json, check_writable, write_json
from .strategy_flags import WithOptions, option

DEFAULT = Hardware(10e12, Link(10e-6, 25e9), 24e9)
MOST_RANKS = 4096
MEASURED, MOST_SECONDS = 3, 10.0  # the layouts that are measured, and what they may take together
# Columns that a narrow terminal has no room for: as few as must be, in this order.
LEFT_OUT = ((), ("bubble",), ("bubble", "bound"), ("bubble", "bound", "here"), ("bubble", "bound", "form"),
            ("bubble", "bound", "here", "form"))  # fmt: skip
UNITS = {f"{prefix}{ending}": base**power for ending, base in (("B", 1000), ("iB", 1024))
         for power, prefix in enumerate(("", "k", "M", "G", "T")) if prefix or ending == "B"}  # fmt: skip


def nbytes_of(text: str) -> float:
    """The bytes of "24GB" or "512MiB"; ValueError for another text."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?([a-zA-Z]+)", text.strip())
    if match is None or match[2] not in UNITS or not float(match[1]):
        raise ValueError(
            f"--memory is the bytes of a rank, as 24GB or 512MiB, got {text!r}; the units are "
            + ", ".join(UNITS)
        )
    return float(match[1]) * UNITS[match[2]]


def in_words(nbytes: float) -> str:
    """Bytes with three digits: "1.23 GB"."""
    power = max((p for p in range(5) if nbytes >= 1000**p), default=0)
    return f"{nbytes / 1000**power:.3g} {('', 'k', 'M', 'G', 'T')[power]}B"


@dataclass(frozen=True)
class PlanOptions(NetSettings):
    """The net, the ranks, and what each of them computes, sends and holds."""

    net: str = option("transformer", f"the network, one of {', '.join(NETS)}")
    capacity: float | None = positive(
        "--capacity", "places at an expert, as a multiple of an even share (default: 1.25)", metavar="F"
    )
    penalty: float | None = None  # no option, since it does not change what the net costs
    ranks: int = option(8, "the ranks that share the training", min=1, max=MOST_RANKS)
    batch: int | None = option(
        None, "samples in a step over all ranks (default: the net's)", min=1, max=1_000_000
    )
    memory: str = option(
        "24GB", "what a rank may hold: 24GB, 512MiB", metavar="BYTES", callback=checked_by(nbytes_of)
    )
    flops: float | None = positive("--flops", "operations that a rank computes in a second (default: 1e13)")
    bandwidth: float | None = positive(
        "--bandwidth", "bytes per second from a rank to another (default: 2.5e10)"
    )
    latency: float | None = positive("--latency", "seconds of a message without its bytes (default: 1e-5)")
    measure: bool = option(
        False, "take the speed of this machine's threads, and measure the best layouts on them", "--measure"
    )

    def samples(self, net: Net) -> int:
        """The samples of a step."""
        return self.batch or int(net.defaults.get("batch", 64))

    def hardware(self, default: Hardware = DEFAULT) -> Hardware:
        """What the user gives, and for the rest the speed of ``default``."""
        link = Link(self.latency or default.link.latency, self.bandwidth or default.link.bandwidth)
        return Hardware(self.flops or default.flops, link, nbytes_of(self.memory))


def options_of(plan: PlanOptions, layout: Layout) -> ParallelOptions:
    """The options of ``minigrad train`` for a layout."""
    settings: dict[str, Any] = {f.name: getattr(plan, f.name) for f in fields(NetSettings)}
    settings |= {"data": layout.data if layout.data > 1 else None}
    settings |= {"pipe": layout.pipe, "model": layout.model}
    settings |= {"split_tokens": layout.split_tokens, "expert_parallel": layout.expert_parallel}
    if layout.sequence > 1:
        settings |= {"sequence": layout.sequence, "sequence_form": layout.form}
    if layout.pipe > 1:
        settings |= {"micro": layout.micro, "bounds": ",".join(map(str, layout.bounds))}
    elif layout.micro > 1:
        settings["option"] = [f"micro_batches={layout.micro}"]
    return ParallelOptions(**settings)


def command_of(plan: PlanOptions, layout: Layout) -> str:
    """The command that trains in a layout."""
    batch = {} if plan.batch is None else {"batch": plan.batch}
    return f"minigrad train{arguments(options_of(plan, layout), batch)}"


def config_of(plan: PlanOptions, layout: Layout) -> ParallelConfig:
    """The strategies of a layout; ValueError where ``minigrad train`` refuses it."""
    here = replace(options_of(plan, layout), transport="threads", oversubscribe=True)
    return here.configure({}, plan.batch)["parallel"]


@WithOptions
def plan(options: PlanOptions, json: Json = None) -> None:
    """Print the grids of ranks that can train a net, best first: seconds, bytes, idle time and memory."""
    check_writable(json)
    options.own_sizes()  # raises ValueError for sizes that the net does not have
    net = options.sized_net
    sizes, batch = sizes_of(net), options.samples(net)
    measurement = PlanMeasurement(net, options.ranks, batch)
    hardware = options.hardware()
    if options.measure:
        check_room(options.ranks, "threads", way_out="leave out --measure")
        hardware = options.hardware(measurement.hardware(hardware.memory))
    plans = best_first(sizes, options.ranks, hardware, batch)
    if not plans.fitting:
        raise ValueError(nothing_fits(options, plans.over, batch))
    measured: dict[Layout, float] = {}
    if options.measure:
        best = plans.fitting[:MEASURED]
        check_measurable(best, options.ranks)
        measured = {e.layout: measurement.seconds(config_of(options, e.layout)) for e in best}
    if json is not None:
        rows = [values_of(e, measured.get(e.layout)) for e in plans.fitting]
        write_json(json, {"hardware": hardware._asdict(), "layouts": rows})
    console = new_console()
    print_table(console, options, batch, plans.fitting, measured)
    print(*notes(options, hardware, plans.slower, len(plans.over)), sep="\n")
    first, sense = plans.fitting[0].layout, "estimated"
    if measured:
        print(meaning_of_threads(options.ranks))
        first, sense = min(measured, key=lambda layout: measured[layout]), "measured"
    print(f"least {sense} time of a step: {command_of(options, first)}")
    NextCommand("minigrad lesson 15", "what a cluster would do").show(console)


def meaning_of_threads(ranks: int) -> str:
    """What steps on threads say of other machines."""
    text = f"here: measured on {counted(ranks, 'thread')} of {counted(cores(), 'core')}"
    if ranks <= cores():
        return f"{text}, each with a core of its own"
    return f"{text}: ranks take turns, so time in which one is idle is another's, as on no real cluster"


def check_measurable(best: list[Estimate], ranks: int) -> None:
    """Raise ValueError for steps that would take long, or more memory than is free."""
    seconds = STEPS * sum(e.seconds for e in best)
    needed = ranks * max(e.memory.total for e in best)
    if seconds > MOST_SECONDS:
        raise ValueError(
            f"--measure would take about {seconds:.0f} s here; leave it out, or take a smaller net or --batch"
        )
    if needed > free_memory():
        raise ValueError(
            f"--measure would take {in_words(needed)} here, and {in_words(free_memory())} are free; leave it "
            "out, or take a smaller net or --batch"
        )


def nothing_fits(options: PlanOptions, over: list[tuple[Layout, float]], batch: int) -> str:
    """Why there is no layout, and what would help."""
    ranks = counted(options.ranks, "rank")
    if not over:
        return (
            f"{ranks} cannot all work on {counted(batch, 'sample')} of {options.net}; take "
            "fewer --ranks, or a larger --batch"
        )
    layout, needed = over[0]
    return (
        f"none of {counted(len(over), 'layout')} of {ranks} fits into {options.memory}: the least is "
        f"{in_words(needed)}, with {layout.words()}; pass more --memory or --ranks, or a smaller --batch"
    )


def rows_of(fitting: list[Estimate], measured: dict[Layout, float]) -> list[dict[str, str]]:
    """What the table says of each layout, by its heading."""
    rows = []
    for e in fitting:
        layout, seconds = e.layout, measured.get(e.layout)
        forms = [layout.form] * (layout.sequence > 1) + ["tokens"] * layout.split_tokens
        forms += ["experts"] * layout.expert_parallel
        row = {"grid": "x".join(map(str, layout.shape)), "form": " ".join(forms), "micro": str(layout.micro)}
        row |= {"step": duration(e.seconds), "here": duration(seconds) if seconds else ""}
        row |= {"bubble": f"{e.bubble:.0%}", "bound": e.bound, "sent": in_words(sum(e.sent.values()))}
        rows.append(row | {"memory": in_words(e.memory.total)})
    return rows


def widths_of(rows: list[dict[str, str]], columns: int) -> dict[str, int]:
    """The columns that say something, with their widths; of ``LEFT_OUT`` as few are missing as must be."""
    widths = {h: max(len(h), *(len(row[h]) for row in rows)) for h in rows[0] if any(row[h] for row in rows)}
    part = widths
    for left_out in LEFT_OUT:
        part = {heading: width for heading, width in widths.items() if heading not in left_out}
        if sum(part.values()) + 3 * len(part) + 1 <= columns:  # each has a line and two spaces
            break
    return part


def print_table(
    console: Console, options: PlanOptions, batch: int, fitting: list[Estimate], measured: dict[Layout, float]
) -> None:
    """A row for each layout, without the columns for which the console is too narrow; none is cut."""
    rows = rows_of(fitting, measured)
    widths = widths_of(rows, console.width)
    about = f"{options.net}, {counted(options.ranks, 'rank')}, {counted(batch, 'sample')} a step"
    whole = sum(widths.values()) + 3 * len(widths) + 1
    table = Table(title=f"{about}: data x pipe x sequence x model", width=whole)
    for heading, width in widths.items():
        justify = "left" if heading in ("grid", "form", "bound") else "right"
        table.add_column(heading, justify=justify, no_wrap=True, min_width=width)
    for row in rows:
        table.add_row(*(row[heading] for heading in widths))
    console.print(table, crop=False)
    if missing := [h for h in rows[0] if h not in widths and any(row[h] for row in rows)]:
        print(f"a wider terminal also shows: {', '.join(missing)}")


def values_of(estimate: Estimate, measured: float | None) -> dict[str, Any]:
    """An estimate for ``--json``, with bytes by axis and by what they hold, and the ``measured`` seconds."""
    values = {**vars(estimate), "bound": estimate.bound, "measured": measured}
    return values | {"layout": estimate.layout._asdict(), "memory": estimate.memory._asdict()}


def notes(options: PlanOptions, hardware: Hardware, slower: int, over: int) -> list[str]:
    """What the table leaves out, and what it assumes."""
    left_out = [counted(slower, "slower layout")] if slower else []
    left_out += [f"{counted(over, 'layout')} over {options.memory}"] if over else []
    speeds = f"a rank computes {hardware.flops / 1e9:,.0f} GFLOP/s, and a link takes {hardware.link.words()}"
    origin = "measured here" if options.measure else "set --flops, --latency, --bandwidth"
    return [*([f"left out: {', '.join(left_out)}"] if left_out else []), f"{speeds} ({origin})"]
