"""Times ops and small networks, forward and backward, against PyTorch in the better of its two layouts.

All peers take turns in one process, in shuffled order, float32, one thread; time is the process's own on
the CPU, a figure the median over the rounds, a ratio the median of the rounds' ratios. Before the clock
starts, the values and all gradients are compared with PyTorch's. The last columns are times divided by
PyTorch's, in the same rounds: of the products or loops that a row needs, alone (``limits.py``), and of
minigrad's step on the smallest image, which is Python's time where the kernel is small, too.

python benchmarks/ops.py                      # the table, the worst row first
python benchmarks/ops.py --only conv --rounds 15 --json ops.json
"""

from __future__ import annotations

import json
import random
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from time import process_time
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table
from threadpoolctl import threadpool_limits

from minigrad import loops

try:
    import torch  # pyright: ignore[reportMissingImports]
    from limits import LIMITS
    from ops_rows import ROWS, Row
except ImportError as error:
    if error.name != "torch":
        raise
    print("PyTorch is what minigrad is compared with; install it: pip install torch")
    sys.exit(2)

BOUND = 1.25  # the largest ratio that no row should pass
ROUND_SECONDS = 0.03  # of one peer in one round, at least
console = Console(width=None if sys.stdout.isatty() else 160)


def main(
    only: Annotated[str, typer.Option(help="rows whose title holds this text")] = "",
    rounds: Annotated[int, typer.Option(min=1)] = 9,
    json_file: Annotated[Path | None, typer.Option("--json", help="write the figures there")] = None,
) -> None:
    """Print milliseconds of minigrad and PyTorch for each row, and their ratio."""
    rows = [row for row in ROWS if only in row.title]
    if not rows:
        raise typer.BadParameter(f"no row's title holds {only!r}; leave --only out to see all titles")
    torch.set_num_threads(1)
    with threadpool_limits(1):
        results = [measure(row, rounds) for row in track(rows, console=console, transient=True)]
    results.sort(key=lambda result: -result["minigrad"])
    console.print(results_table(results))
    if json_file is not None:
        json_file.write_text(json.dumps(results, indent=1), encoding="utf-8")


def measure(row: Row, rounds: int) -> dict[str, Any]:
    """Median milliseconds of each peer, and the median ratio to the faster layout of PyTorch."""
    steps = row.peers()
    row.check(steps)
    peers: dict[str, Callable[[], object]] = {**steps}
    if row.title in LIMITS:
        peers["limit"] = LIMITS[row.title]()
    repeats = {name: max(1, round(ROUND_SECONDS / seconds(step, 2))) for name, step in peers.items()}
    times: dict[str, list[float]] = defaultdict(list)
    for _ in range(rounds):
        for name in random.sample(list(peers), len(peers)):
            times[name].append(seconds(peers[name], repeats[name]))
    medians = {name: statistics.median(values) for name, values in times.items()}
    best = min((name for name in ("torch", "channels_last") if name in peers), key=lambda name: medians[name])
    ratios = {
        name: statistics.median(a / b for a, b in zip(times[name], times[best], strict=True))
        for name in peers
        if name not in ("torch", "channels_last")
    }
    return {"title": row.title, "ms": {k: 1000 * v for k, v in medians.items()}, "best": best, **ratios}


def seconds(step: Callable[[], object], repeats: int) -> float:
    """CPU time per call."""
    start = process_time()
    for _ in range(repeats):
        step()
    return (process_time() - start) / repeats


def results_table(results: list[dict[str, Any]]) -> Table:
    over = [result for result in results if result["minigrad"] > BOUND]
    limited = [result for result in over if result.get("limit", 0) > BOUND]
    compiler = f"Numba {version('numba')}" if loops.available() else "no Numba"
    versions = f"NumPy {np.__version__}, {compiler}, PyTorch {torch.__version__}"
    table = Table(
        title="forward and backward against PyTorch's better layout, float32, one thread",
        caption=f"{len(over)} of {len(results)} rows take more than {BOUND} times as long, their products or "
        f"loops alone in {len(limited)} of them; {versions}",
    )
    for column in ("", "minigrad ms", "PyTorch ms", "channels_last ms", "ratio", "alone", "smallest image"):
        table.add_column(column, justify="left" if not column else "right", no_wrap=True)
    for result in results:
        ms = result["ms"]
        last = f"{ms['channels_last']:.3f}" if "channels_last" in ms else ""
        ratios = (
            f"{result[name]:.2f}" if name in result else "" for name in ("minigrad", "limit", "smallest")
        )
        figures = f"{ms['minigrad']:.3f}", f"{ms['torch']:.3f}", last, *ratios
        table.add_row(result["title"], *figures)
    return table


if __name__ == "__main__":
    typer.run(main)
