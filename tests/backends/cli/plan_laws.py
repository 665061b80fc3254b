"""Laws of backends/cli/plan_command.py and plan_measurement.py: a table cuts no number on a narrow terminal,
and the speed of ranks is that of their best repetition.
"""

from __future__ import annotations

import io
import itertools
from unittest.mock import patch

from rich.console import Console

from backends.cli import plan_measurement
from backends.cli.plan_command import PlanOptions, in_words, print_table, sizes_of
from backends.cli.plan_measurement import REPETITIONS, SECONDS, SIDE, PlanMeasurement
from backends.comm.timeline import duration
from backends.planner import best_first
from minigrad.models import NETS


def table_keeps_its_numbers(options: PlanOptions, width: int, measured: int) -> None:
    """Assert grid, seconds and bytes of each layout in a line of its own, at 60 columns too.

    The first ``measured`` layouts have measured seconds, which a table of any width from 100 shows.
    """
    net = options.sized_net
    fitting = best_first(sizes_of(net), options.ranks, options.hardware(), options.samples(net)).fitting
    here = {e.layout: 12.3456e-3 for e in fitting[:measured]}
    out = io.StringIO()
    print_table(Console(file=out, width=width), options, options.samples(net), fitting, here)
    lines = out.getvalue().splitlines()
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines if line.startswith("│")]
    assert len(rows) == len(fitting), f"{len(fitting)} layouts in {len(rows)} lines"
    for row, e in zip(rows, fitting, strict=True):
        needed = ["x".join(map(str, e.layout.shape)), str(e.layout.micro), duration(e.seconds)]
        needed += [in_words(sum(e.sent.values())), in_words(e.memory.total)]
        needed += [duration(here[e.layout])] if e.layout in here and width >= 100 else []
        assert not set(needed) - set(row), f"{set(needed) - set(row)} is not in {row}, at {width} columns"
        assert "…" not in "".join(row), row
    longest = max(len(line) for line in lines if "│" in line)
    assert longest <= max(width, 60), f"a line has {longest} characters, and the terminal {width}"


def speed_is_of_the_best_repetition(starved: int) -> None:
    """Assert the speed of a rank that has a core for itself but in one repetition, by a clock of products."""
    ticks = 10  # of a clock in a repetition, by which a rank makes so many products
    quick = [SECONDS / ticks * (n + 0.5) for n in range(ticks + 1)]
    slow = [0.0, 100 * SECONDS]
    times, start = [], 0.0
    for number in range(REPETITIONS):
        spent = slow if number == starved else [0.0, *quick]
        times += [start + t for t in spent]
        start += 1000.0
    clock = itertools.chain(times, itertools.repeat(start))
    with patch.object(plan_measurement, "perf_counter", lambda: next(clock)):
        flops = PlanMeasurement(NETS["mlp"], 1, 4).hardware(1e9).flops
    expected = 2 * SIDE**3 * ticks / quick[-1]
    assert abs(flops / expected - 1) < 1e-9, f"{flops} operations a second, counted {expected}"
