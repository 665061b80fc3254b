"""Trains what five papers trained, small, on 5,000 digits, and checks the order of their results.

Deep gradient compression, staleness, error feedback for signs, PowerSGD, QSGD: see ``published_figures``. The
exit status is 1 where an order does not hold. Needs neither MPI nor a GPU.

python benchmarks/published.py                                # all five: some minutes on two cores
python benchmarks/published.py --only dgc,staleness --jobs 1
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from time import perf_counter, process_time
from typing import Annotated

import typer
from published_figures import FIGURES, Figure, Line, Train
from published_orders import Row, verdicts
from published_training import Result
from rich.console import Console
from rich.table import Table

Measured = dict[Train, Row]  # trainings that several figures share are run once


def main(
    only: Annotated[str, typer.Option(help=f"some of {','.join(FIGURES)}")] = ",".join(FIGURES),
    seeds: Annotated[int, typer.Option(min=1)] = 3,
    jobs: Annotated[int, typer.Option(min=1, help="trainings at a time, each a process")] = 2,
) -> None:
    """Print the train loss of every row beside the paper's claim, and whether the orders hold."""
    console, measured, failed = Console(width=110), Measured(), 0
    names = chosen(only)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context) as pool:
        for name in names:
            figure, start = FIGURES[name], perf_counter()
            with console.status(f"{name}: {len(figure.lines)} rows, {seeds} seeds"):
                work = train_missing(pool, figure.lines.values(), seeds, measured)
            failed += show(console, figure, measured)
            seconds = f"{work:.0f} s of CPU time, {perf_counter() - start:.0f} s with {jobs} at a time"
            console.print(f"  {seconds}\n", highlight=False)
    if failed:
        console.print(f"[bold red]{failed} orders do not hold")
        raise typer.Exit(1)
    console.print("All orders hold.")


def chosen(only: str) -> list[str]:
    """The figures named in ``only``; raises ``typer.BadParameter``, with the choices, for another."""
    names = [name.strip() for name in only.split(",") if name.strip()]
    for name in names:
        if name not in FIGURES:
            raise typer.BadParameter(f"{name!r} is no figure; choose some of {','.join(FIGURES)}")
    if not names:
        raise typer.BadParameter(f"no figure is named; choose some of {','.join(FIGURES)}")
    return names


def train_missing(pool: ProcessPoolExecutor, lines: Iterable[Line], seeds: int, measured: Measured) -> float:
    """Train what is not in ``measured`` yet with every seed, and put it there; the seconds of CPU time."""
    missing, seconds = [line.train for line in lines if line.train not in measured], 0.0
    started = {t: [pool.submit(timed, t, seed) for seed in range(seeds)] for t in missing}
    for train, runs in started.items():
        results, times = zip(*(run.result() for run in runs), strict=True)
        measured[train] = Row([loss for loss, _ in results], [right for _, right in results])
        seconds += sum(times)
    return seconds


def timed(train: Train, seed: int) -> tuple[Result, float]:
    """What ``train`` found, and the CPU time it took, of all threads of this process."""
    start = process_time()
    return train(seed), process_time() - start


def show(console: Console, figure: Figure, measured: Measured) -> int:
    """Print the figure's table and its orders; the number of those that do not hold."""
    rows = {name: measured[line.train] for name, line in figure.lines.items()}
    console.print(table(figure, rows))
    answers = verdicts(figure.orders, rows)
    for order, holds in answers:
        console.print(f"  {order}: {'holds' if holds else '[bold red]does not hold[/]'}", highlight=False)
    return sum(not holds for _, holds in answers)


def table(figure: Figure, rows: dict[str, Row]) -> Table:
    """What was measured: the mean loss, the least and the greatest of the seeds, the mean test accuracy."""
    made = Table(title=figure.title, caption=figure.claim, title_justify="left", caption_justify="left")
    made.add_column("", no_wrap=True)
    for column in ("train loss", "of seeds", "test", "simulated"):
        made.add_column(column, justify="right", no_wrap=True)
    made.add_column("the paper")
    for name, line in figure.lines.items():
        row = rows[name]
        right = sum(row.accuracies) / len(row.accuracies)
        test = "" if right != right else f"{right:.1%}"
        seeds, simulated = span(map(number, sorted(row.losses))), span(f"{x:g}" for x in line.simulated)
        made.add_row(name, number(row.mean), seeds, test, simulated, line.paper)
    return made


def span(values: Iterable[str]) -> str:
    """The least and the greatest of sorted ``values``, or the only one."""
    ends = list(values)
    return "-".join(dict.fromkeys((*ends[:1], *ends[-1:])))


def number(value: float) -> str:
    """Four decimals below 0.01, three below 1, then two."""
    return f"{value:.{4 if value < 0.0095 else 3 if value < 0.9995 else 2}f}"


if __name__ == "__main__":
    typer.run(main)
