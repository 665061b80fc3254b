"""How many samples a second one and two processes train, by strategy.

Source: the first experiment of the course's proposal: data-parallel and model-parallel speed against serial.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure
from rich.table import Table

from backends.comm.collectives import broadcast
from backends.comm.communicator import Communicator
from minigrad.figures import BLUE, GREY, ORANGE
from minigrad.mnist import load
from minigrad.models import find_net

from .experiment import Experiment, Result
from .training_run import STRATEGIES, TrainingRun, backend_of

if TYPE_CHECKING:
    from backends.comm.mpi import MPIComm

BATCHES = {"lenet": 256, "sigmoid": 1000}
STEPS_COMPARED = 3


@dataclass
class Speedup(Experiment):
    rounds: int = 11
    least_seconds: float = 0.2  # of a turn, serial

    name = "speedup"
    title = "samples per second: serial, data parallel, model parallel, pipeline on 1 and 2 processes"

    def measure(self, comm: MPIComm) -> Result:
        result: Result = {"rounds": self.rounds, "nets": {}}
        for net, batch_size in BATCHES.items():
            self.say(comm, f"{net}: {self.rounds} rounds, in which all take turns")
            result["nets"][net] = {
                "batch_size": batch_size,
                "largest_difference": largest_difference(comm, net, batch_size),
                "peers": self.samples_per_second(comm, net, batch_size),
            }
        return result

    def samples_per_second(self, comm: Communicator, net: str, batch_size: int) -> dict[str, Any]:
        """Medians over rounds in which all take turns, in shuffled order; a speedup is a ratio in a round."""
        runs = peers(comm, net, batch_size, "float32")
        for run in runs.values():
            run.advance(comm, 2)
        probe = runs["serial"].advance(comm, 2) / 2
        steps = int(broadcast(comm, np.array(max(2, round(self.least_seconds / max(probe, 1e-6))))))
        seconds: dict[str, list[float]] = {name: [] for name in runs}
        order = random.Random(0)  # the same on both ranks
        for _ in range(self.rounds):
            for name in order.sample(list(runs), len(runs)):
                seconds[name].append(runs[name].advance(comm, steps) / steps)
        close(runs)
        return {
            name: {
                "samples_per_second": batch_size / median(times),
                "speedup": median(a / b for a, b in zip(seconds["serial"], times, strict=True)),
            }
            for name, times in seconds.items()
        }

    def tables(self, result: Result) -> list[Table]:
        return [table(net, figures) for net, figures in result["nets"].items()]

    def draw(self, result: Result) -> Figure:
        figure = Figure(figsize=(10, 4.4), layout="constrained")
        nets = result["nets"].items()
        for axes, (net, figures) in zip(figure.subplots(1, 2, sharey=True), nets, strict=True):
            for ranks, color, label in ((1, ORANGE, "1 process"), (2, BLUE, "2 processes")):
                heights = [figures["peers"][f"{strategy}, {ranks}"]["speedup"] for strategy in STRATEGIES]
                places = np.arange(len(STRATEGIES)) + 0.38 * (ranks - 1.5)
                axes.bar(places, heights, 0.36, color=color, label=label)
            axes.axhline(1, color=GREY, linewidth=0.8)
            names = [name.replace(", ", ",\n").replace(" ", "\n") for name in STRATEGIES]
            axes.set_xticks(range(len(STRATEGIES)), names, fontsize=9)
            serial = figures["peers"]["serial"]["samples_per_second"]
            axes.set_title(f"{net}, batch {figures['batch_size']}; 1 = {serial:,.0f} samples/s", fontsize=11)
        figure.axes[0].set_ylabel("speed, serial = 1")
        handles = figure.axes[0].get_legend_handles_labels()
        figure.legend(*handles, loc="outside lower center", ncols=2)
        return figure


def peers(comm: Communicator, net: str, batch_size: int, dtype: str) -> dict[str, TrainingRun]:
    """Every strategy on one process and on both, and serial training."""
    own = comm.split(comm.rank)  # this rank alone
    places = [("serial", 1), *((strategy, ranks) for strategy in STRATEGIES for ranks in (1, 2))]
    return {
        name if name == "serial" else f"{name}, {ranks}": TrainingRun(
            find_net(net),
            load("mnist5k"),
            backend_of(find_net(net), name, own if ranks == 1 else comm, batch_size),
            batch_size=batch_size,
            dtype=dtype,
            alone=ranks == 1,
        )
        for name, ranks in places
    }


def largest_difference(comm: Communicator, net: str, batch_size: int) -> float:
    """Take a few steps in float64 with each strategy: of all losses, the largest difference from serial."""
    runs = peers(comm, net, batch_size, "float64")
    for run in runs.values():
        run.advance(comm, STEPS_COMPARED)
    difference = max(run.difference(runs["serial"]) for run in runs.values()) if comm.rank == 0 else 0.0
    close(runs)
    assert difference < 1e-12, f"{net}: a loss differs from serial by {difference:.1e} of it, more than 1e-12"
    return difference


def close(runs: dict[str, TrainingRun]) -> None:
    for run in runs.values():
        run.close()


def table(net: str, figures: Result) -> Table:
    one = Table(
        title=f"{net}, batch of {figures['batch_size']}: samples per second, and speed with serial = 1"
    )
    one.add_column("strategy")
    for title in ("1 process", "", "2 processes", ""):
        one.add_column(title, justify="right")
    serial = figures["peers"]["serial"]
    one.add_row("serial", f"{serial['samples_per_second']:,.0f}", "1.00", "", "")
    for strategy in STRATEGIES:
        cells = []
        for ranks in (1, 2):
            peer = figures["peers"][f"{strategy}, {ranks}"]
            cells += [f"{peer['samples_per_second']:,.0f}", f"{peer['speedup']:.2f}"]
        one.add_row(strategy, *cells)
    one.caption = f"in float64 all losses equal the serial ones within {figures['largest_difference']:.0e}"
    return one
