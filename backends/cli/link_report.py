"""The report of ``minigrad doctor`` about the links between ranks or hosts, the worst pairs first."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from statistics import median
from typing import Any

from rich.table import Table

from ..comm.collectives.costs import Machine, fastest_allreduce
from ..comm.collectives.link import Link
from ..launch.ping_pong import Links, Pair

SLOW = 3  # times the median of the pairs like it: a pair that is slower is pointed out
SHOWN = 20  # pairs of many
SIZES = [1 << n for n in range(10, 27)]  # bytes of arrays for which an all-reduce is chosen


def worst_first(links: Links) -> list[tuple[Pair, bool]]:
    """The pairs by the time of 1 MiB, and whether one is slow among those inside or between machines."""
    slow = set()
    for pairs in filter(None, inside_and_between(links)):
        latency = median(pair.latency for pair in pairs)
        bandwidth = median(pair.bandwidth for pair in pairs)
        slow |= {p for p in pairs if p.latency > SLOW * latency or p.bandwidth < bandwidth / SLOW}
    ordered = sorted(links.pairs, key=lambda pair: -pair.link.seconds(1 << 20))
    return [(pair, pair in slow) for pair in ordered]


def link_table(links: Links) -> Table:
    """A row for each pair, at most 20."""
    ordered = worst_first(links)
    left_out = len(ordered) - SHOWN
    caption = f"and {left_out} faster pairs" if left_out > 0 else None
    table = Table("ranks", "hosts", "interfaces", "latency", "bandwidth", "", caption=caption)
    for pair, slow in ordered[:SHOWN]:
        hosts = dict.fromkeys((links.hosts[pair.one], links.hosts[pair.other]))
        table.add_row(
            f"{pair.one} - {pair.other}",
            " - ".join(hosts),
            " - ".join(dict.fromkeys(pair.interfaces)),
            f"{pair.latency * 1e6:.0f} us",
            rate(pair.bandwidth),
            "slow" if slow else "",
        )
    return table


def machine_of(links: Links) -> Machine | None:
    """The ranks with the slowest links inside machines and between them; None for one rank."""
    inside, between = inside_and_between(links)
    slow_links = [slowest(pairs) for pairs in (inside or between, between or inside) if pairs]
    return Machine(links.nodes, *slow_links) if slow_links else None


def slowest(pairs: list[Pair]) -> Link:
    """A link with the largest latency and the smallest bandwidth of these pairs."""
    return Link(max(pair.latency for pair in pairs), min(pair.bandwidth for pair in pairs))


def choices(machine: Machine) -> Iterator[tuple[str, int]]:
    """The all-reduces that --allreduce auto takes, and the largest of ``SIZES`` for which it takes each."""
    for name, sizes in groupby(SIZES, lambda nbytes: fastest_allreduce(nbytes, machine)):
        yield name, max(sizes)


def conclusion(links: Links) -> str:
    """The choice of the all-reduce, and how many pairs are slow."""
    machine = machine_of(links)
    if machine is None:
        return "one rank has no link"
    *some, (last, _) = choices(machine)
    taken = "".join(f"{name} up to {in_bytes(nbytes)}, then " for name, nbytes in some)
    slow = [f"{pair.one} - {pair.other}" for pair, slow in worst_first(links) if slow]
    warning = (
        f"\nmore than {SLOW} times slower than pairs like them: {', '.join(slow[:SHOWN])}" if slow else ""
    )
    return f"--allreduce auto takes {taken}{last}{warning}"


def inside_and_between(links: Links) -> tuple[list[Pair], list[Pair]]:
    """The pairs whose ranks are on one machine, and the others."""
    pairs: tuple[list[Pair], list[Pair]] = [], []
    for pair in links.pairs:
        pairs[links.nodes[pair.one] != links.nodes[pair.other]].append(pair)
    return pairs


def rate(bandwidth: float) -> str:
    """Bytes per second in words: "1.2 GB/s"."""
    return f"{bandwidth / 1e9:.3g} GB/s" if bandwidth >= 1e9 else f"{bandwidth / 1e6:.3g} MB/s"


def in_bytes(nbytes: int) -> str:
    """A power of two of bytes in words: "64 KiB"."""
    return f"{nbytes >> 20} MiB" if nbytes >= 1 << 20 else f"{nbytes >> 10} KiB"


def as_values(links: Links) -> dict[str, Any]:
    """For --json: the pairs worst first, each with its hosts."""
    pairs = [
        {
            "ranks": [pair.one, pair.other],
            "hosts": [links.hosts[pair.one], links.hosts[pair.other]],
            "interfaces": list(pair.interfaces),
            "latency": pair.latency,
            "bandwidth": pair.bandwidth,
            "slow": slow,
        }
        for pair, slow in worst_first(links)
    ]
    machine = machine_of(links)
    taken = [] if machine is None else [{"allreduce": name, "up_to": most} for name, most in choices(machine)]
    return {"pairs": pairs, "allreduce": taken}
