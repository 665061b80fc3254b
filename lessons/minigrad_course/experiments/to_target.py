"""Steps, epochs and seconds until 90, 95 and 97 % of the test digits are recognized.

Source: the second experiment of the course's proposal: how long training takes to reach a target, by batch
size and by strategy.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure
from rich.table import Table

from backends.comm.collectives import broadcast
from backends.comm.communicator import Communicator
from minigrad.figures import COLORS, GREY, INK, curve
from minigrad.mnist import load
from minigrad.models import find_net

from .experiment import Experiment, Result
from .training_run import STRATEGIES, TrainingRun, backend_of

if TYPE_CHECKING:
    from backends.comm.mpi import MPIComm

NET, TARGETS, UNITS = "lenet", (0.90, 0.95, 0.97), ("steps", "epochs", "seconds")
BATCH = 64  # of the strategies
SAMPLES = 1280  # between two tests
SAME = 1e-8  # of a loss, after hundreds of steps in float64


@dataclass
class ToTarget(Experiment):
    batches: tuple[int, ...] = (16, BATCH, 256, 1024)
    most_epochs: float = 20

    name = "to-target"
    title = f"steps, epochs and seconds to {', '.join(f'{t:.0%}' for t in TARGETS)} test accuracy"
    minutes = 3

    def measure(self, comm: MPIComm) -> Result:
        own = comm.split(comm.rank)  # this rank alone
        runs = {f"serial, batch {size}": run_of("serial", own, size) for size in self.batches}
        runs |= {strategy: run_of(strategy, comm, BATCH) for strategy in STRATEGIES}
        curves: dict[str, list[dict[str, float]]] = {name: [] for name in runs}
        order = random.Random(0)  # the same on both ranks
        unfinished = list(runs)
        while unfinished:
            for name in order.sample(unfinished, len(unfinished)):
                run = runs[name]
                run.advance(comm, SAMPLES // run.batch_size or 1)
                accuracy = run.accuracy(comm)
                point = {"steps": len(run.losses), "epochs": run.epochs, "seconds": run.seconds}
                curves[name].append({**point, "accuracy": accuracy})
                if broadcast(comm, np.array(accuracy >= TARGETS[-1] or run.epochs >= self.most_epochs)):
                    unfinished.remove(name)
                    self.say(comm, f"{name}: {accuracy:.1%} after {len(run.losses):,} steps")
        result: Result = {"net": NET, "batch_size": BATCH, "curves": curves, "differences": {}}
        for strategy in STRATEGIES if comm.rank == 0 else ():
            difference = runs[strategy].difference(runs[f"serial, batch {BATCH}"])
            assert difference < SAME, (
                f"{strategy}: a loss differs from serial by {difference:.1e}, not {SAME:.0e}"
            )
            result["differences"][strategy] = difference
        for run in runs.values():
            run.close()
        return result

    def tables(self, result: Result) -> list[Table]:
        curves = result["curves"]
        batches = Table(title=f"{result['net']} on 5,000 digits, one process: until a test accuracy")
        batches.add_column("batch", justify="right")
        for target in TARGETS:
            for unit in UNITS:
                batches.add_column(f"{target:.0%}\n{unit}", justify="right")
        for size in self.batches:
            points = [first_at(curves[f"serial, batch {size}"], target) for target in TARGETS]
            batches.add_row(f"{size:,}", *(cell for point in points for cell in words(point)))
        batches.caption = f"-: not within {self.most_epochs:g} epochs"
        strategies = Table(title=f"batch {result['batch_size']}, two processes: seconds")
        strategies.add_column("strategy")
        for target in TARGETS:
            strategies.add_column(f"{target:.0%}\nseconds", justify="right")
        for name in (f"serial, batch {result['batch_size']}", *STRATEGIES):
            strategies.add_row(name, *(words(first_at(curves[name], target))[2] for target in TARGETS))
        largest = max(result["differences"].values())
        strategies.caption = f"all losses equal those of serial training within {largest:.0e}"
        return [batches, strategies]

    def draw(self, result: Result) -> Figure:
        figure = Figure(figsize=(10.5, 4.4), layout="constrained")
        left, right = figure.subplots(1, 2, sharey=True)
        serial = f"serial, batch {result['batch_size']}"
        for color, name in zip(COLORS, (f"serial, batch {size}" for size in self.batches), strict=False):
            plot(left, result["curves"][name], "epochs", color, name)
        for color, name in zip((INK, *COLORS), (serial, *STRATEGIES), strict=False):
            plot(
                right,
                result["curves"][name],
                "seconds",
                color,
                name if name == serial else f"{name}, 2 processes",
            )
        left.set(title="By batch size, one process", xlabel="epochs", ylabel="test accuracy", ylim=(0.7, 1))
        right.set(title=f"Two processes, batch {result['batch_size']}", xlabel="seconds in steps")
        for axes in (left, right):
            for target in TARGETS:
                axes.axhline(target, color=GREY, linewidth=0.6, linestyle="dotted")
            axes.legend(fontsize=9, loc="lower right")
        return figure


def run_of(strategy: str, comm: Communicator, batch_size: int) -> TrainingRun:
    """A training at the net's own rate, or for smaller batches at one in proportion (Goyal et al. 2017)."""
    net = find_net(NET)
    return TrainingRun(
        net,
        load("mnist5k"),
        backend_of(net, strategy, comm, batch_size),
        batch_size=batch_size,
        dtype="float64",
        lr=net.lr * min(batch_size / BATCH, 1),
        alone=strategy == "serial",
    )


def first_at(curve: list[dict[str, float]], target: float) -> dict[str, float] | None:
    """The first test that reached the target."""
    return next((point for point in curve if point["accuracy"] >= target), None)


def words(point: dict[str, float] | None) -> list[str]:
    """The figures by ``UNITS``; dashes where the target was not reached."""
    if point is None:
        return ["-"] * len(UNITS)
    return [f"{point['steps']:,.0f}", f"{point['epochs']:.1f}", f"{point['seconds']:.1f}"]


def plot(axes: Any, rows: list[dict[str, float]], unit: str, color: str, label: str) -> None:
    x, y = [point[unit] for point in rows], [point["accuracy"] for point in rows]
    axes.plot(x, y, **curve(color) | {"ms": 4, "lw": 1.5}, label=label)
