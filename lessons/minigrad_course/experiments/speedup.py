"""How many samples a second one and two processes train, by strategy: strong and weak scaling.

Strong scaling shares the batch of one process among two (Amdahl 1967); weak scaling gives each process as
many samples as one had (Gustafson 1988). Source: the first experiment of the course's proposal:
data-parallel and model-parallel speed against serial.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure
from rich.table import Table

from backends.comm.collectives import broadcast
from backends.comm.communicator import Communicator
from minigrad import nn, ops
from minigrad.data import Batch
from minigrad.figures import BLUE, GREEN, GREY, ORANGE
from minigrad.mnist import Dataset, load
from minigrad.models import Net, find_net

from .experiment import Experiment, Result
from .training_run import STRATEGIES, TrainingRun, backend_of

if TYPE_CHECKING:
    from backends.comm.mpi import MPIComm

WIDTH, LAYERS = 1024, 5  # of the wide net: its hidden layers, and the products between them


def wide(rng: np.random.Generator) -> nn.Sequential:
    """784-1024-1024-1024-1024-1024-1024-10: much work for each number that is sent, in equal layers."""
    layers: list[nn.Module] = [nn.Flatten(), nn.Linear(784, WIDTH, rng=rng), nn.ReLU()]
    for _ in range(LAYERS):
        layers += [nn.Linear(WIDTH, WIDTH, rng=rng), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(WIDTH, 10, rng=rng))


NETS = {
    "lenet": (find_net("lenet"), 256),
    "sigmoid": (find_net("sigmoid"), 1000),
    "wide": (Net(wide, ops.cross_entropy, lr=0.02, momentum=0.9), 1024),
}
"""Nets, and the batch of each on one process."""
STEPS_COMPARED = 3


@dataclass
class Speedup(Experiment):
    rounds: int = 11
    least_seconds: float = 0.2  # of a turn, serial
    nets: tuple[str, ...] = tuple(NETS)

    name = "speedup"
    title = "samples per second: serial, data parallel, model parallel, pipeline on 1 and 2 processes"
    minutes = 4

    def measure(self, comm: MPIComm) -> Result:
        result: Result = {"rounds": self.rounds, "nets": {}}
        for name in self.nets:
            net, batch_size = NETS[name]
            self.say(comm, f"{name}: {self.rounds} rounds, in which all take turns")
            difference = largest_difference(comm, name, net, batch_size)
            figures = {"batch_size": batch_size, "largest_difference": difference}
            result["nets"][name] = figures | self.samples_per_second(comm, net, batch_size)
        return result

    def samples_per_second(self, comm: Communicator, net: Net, batch_size: int) -> dict[str, Any]:
        """Medians over rounds in which all take turns, in shuffled order; a speedup is a ratio in a round.

        In "weak" both processes have twice the batch, and a speedup is of samples a second.
        """
        strong, weak = peers(comm, net, batch_size, "float32"), twice_the_batch(comm, net, batch_size)
        runs = strong | {f"{name}, weak": run for name, run in weak.items()}
        for run in runs.values():
            run.advance(comm, 2)
        probe = runs["serial"].advance(comm, 2) / 2
        steps = int(broadcast(comm, np.array(max(2, round(self.least_seconds / max(probe, 1e-6))))))
        rates: dict[str, list[float]] = {name: [] for name in runs}
        order = random.Random(0)  # the same on both ranks
        for _ in range(self.rounds):
            for name in order.sample(list(runs), len(runs)):
                rates[name].append(runs[name].batch_size * steps / runs[name].advance(comm, steps))
        close(runs)
        figures = {
            name: {
                "samples_per_second": median(of_run),
                "speedup": median(a / b for a, b in zip(of_run, rates["serial"], strict=True)),
            }
            for name, of_run in rates.items()
        }
        return {
            "peers": {name: figures[name] for name in strong},
            "weak": {name: figures[f"{name}, weak"] for name in weak},
        }

    def tables(self, result: Result) -> list[Table]:
        return [table(net, figures) for net, figures in result["nets"].items()]

    def draw(self, result: Result) -> Figure:
        nets = result["nets"].items()
        figure = Figure(figsize=(5 * len(nets), 4.4), layout="constrained")
        for axes, (net, figures) in zip(figure.subplots(1, len(nets), sharey=True), nets, strict=True):
            bars = {
                "1 process": (ORANGE, [figures["peers"][f"{name}, 1"] for name in STRATEGIES]),
                "2 processes": (BLUE, [figures["peers"][f"{name}, 2"] for name in STRATEGIES]),
            }
            if "weak" in figures:
                bars["2 processes, twice the batch"] = GREEN, [figures["weak"][name] for name in STRATEGIES]
            width = 0.76 / len(bars)
            for i, (label, (color, peers_of)) in enumerate(bars.items()):
                places = np.arange(len(STRATEGIES)) + width * (i - (len(bars) - 1) / 2)
                heights = [peer["speedup"] for peer in peers_of]
                axes.bar(places, heights, width - 0.02, color=color, label=label)
            axes.axhline(1, color=GREY, linewidth=0.8)
            names = [name.replace(", ", ",\n").replace(" ", "\n") for name in STRATEGIES]
            axes.set_xticks(range(len(STRATEGIES)), names, fontsize=9)
            serial = figures["peers"]["serial"]["samples_per_second"]
            axes.set_title(f"{net}, batch {figures['batch_size']}; 1 = {serial:,.0f} samples/s", fontsize=11)
        figure.axes[0].set_ylabel("samples a second, serial = 1")
        handles = figure.axes[0].get_legend_handles_labels()
        figure.legend(*handles, loc="outside lower center", ncols=3)
        return figure


def digits_of(batch_size: int) -> Dataset:
    """The digits; those to train on are whole batches of twice this size, so that none is smaller."""
    digits = load("mnist5k")
    n = len(digits.train) // (2 * batch_size) * 2 * batch_size
    return replace(digits, train=Batch(digits.train.x[:n], digits.train.y[:n]))


def peers(comm: Communicator, net: Net, batch_size: int, dtype: str) -> dict[str, TrainingRun]:
    """Every strategy on one process and on both, and serial training."""
    own, digits = comm.split(comm.rank), digits_of(batch_size)  # this rank alone
    places = [("serial", 1), *((strategy, ranks) for strategy in STRATEGIES for ranks in (1, 2))]
    return {
        name if name == "serial" else f"{name}, {ranks}": TrainingRun(
            net,
            digits,
            backend_of(net, name, own if ranks == 1 else comm, batch_size),
            batch_size=batch_size,
            dtype=dtype,
            alone=ranks == 1,
        )
        for name, ranks in places
    }


def twice_the_batch(comm: Communicator, net: Net, batch_size: int) -> dict[str, TrainingRun]:
    """Every strategy on both processes, with as many samples for each as one process has in ``peers``."""
    twice, digits = 2 * batch_size, digits_of(batch_size)
    return {
        name: TrainingRun(net, digits, backend_of(net, name, comm, twice), batch_size=twice, dtype="float32")
        for name in STRATEGIES
    }


def largest_difference(comm: Communicator, name: str, net: Net, batch_size: int) -> float:
    """Take a few steps in float64 with each strategy: of all losses, the largest difference from serial."""
    runs = peers(comm, net, batch_size, "float64")
    for run in runs.values():
        run.advance(comm, STEPS_COMPARED)
    difference = max(run.difference(runs["serial"]) for run in runs.values()) if comm.rank == 0 else 0.0
    close(runs)
    assert difference < 1e-12, (
        f"{name}: a loss differs from serial by {difference:.1e} of it, more than 1e-12"
    )
    return difference


def close(runs: dict[str, TrainingRun]) -> None:
    for run in runs.values():
        run.close()


def table(net: str, figures: Result) -> Table:
    one = Table(
        title=f"{net}, batch of {figures['batch_size']}: samples per second, and speed with serial = 1"
    )
    weak = figures.get("weak", {})
    one.add_column("strategy")
    for title in ("1 process", "", "2 processes", "", *(("2, twice the batch", "") if weak else ())):
        one.add_column(title, justify="right")
    serial = figures["peers"]["serial"]
    one.add_row("serial", f"{serial['samples_per_second']:,.0f}", "1.00", *[""] * (4 if weak else 2))
    for strategy in STRATEGIES:
        measured = [figures["peers"][f"{strategy}, {ranks}"] for ranks in (1, 2)]
        cells = []
        for peer in [*measured, weak[strategy]] if weak else measured:
            cells += [f"{peer['samples_per_second']:,.0f}", f"{peer['speedup']:.2f}"]
        one.add_row(strategy, *cells)
    one.caption = f"in float64 all losses equal the serial ones within {figures['largest_difference']:.0e}"
    return one
