"""Data parallelism over a slow link: two hosts with 1 Gbit/s between them, against one host.

The settings are those of the article on distributed neural networks with MPI: rate 0.1, 60 iterations over
5,000 digits. The hosts are network namespaces of this machine with shaped links; only root may make them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from textwrap import fill
from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure
from rich.table import Table

from backends.launch.launch import environment, mpi_command, mpi_problem, under_mpiexec
from backends.launch.supervise import GRACE
from minigrad.figures import BLUE, ORANGE, SAND

from .article import PROGRAMS, train_by_programs
from .experiment import RANKS, Experiment, Result
from .hosts import Hosts, problem

if TYPE_CHECKING:
    from backends.comm.mpi import MPIComm

RATE, ITERATIONS, LINK = 0.1, 60, 10**9  # bit/s
WORLDS = {"one host": "two processes on one host", "two hosts": "one process on each of two hosts, 1 Gbit/s"}
RESULT = "MINIGRAD_SLOW_LINK"  # the variable that names the file for the figures of a world
BOUND = 600.0  # seconds that a world may take


@dataclass
class SlowLink(Experiment):
    rounds: int = 3

    name = "slow-link"
    title = "60 iterations on one host, and on two with 1 Gbit/s between them (needs root)"
    minutes = 1

    def start(self) -> int:
        """Start the worlds by turns, each as a job of its own; the ranks of a job come here, too."""
        if under_mpiexec():
            return super().start()
        if reason := mpi_problem() or problem():
            raise RuntimeError(f"the experiment makes hosts of network namespaces: {reason}")
        rounds: dict[str, list[Result]] = {world: [] for world in WORLDS}
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            with Hosts(folder, LINK, RANKS) as hosts:
                commands = {
                    "one host": mpi_command(RANKS, [sys.executable, "-m", "mpi4py", *program()]),
                    "two hosts": hosts.mpiexec(RANKS, *program()),
                }
                for number in range(1, self.rounds + 1):
                    print(f"round {number} of {self.rounds}", flush=True)
                    for world, command in commands.items():
                        rounds[world].append(figures_of(command, folder / "figures.json"))
        self.report(summary(rounds))
        return 0

    def measure(self, comm: MPIComm) -> Result:
        return train_by_programs(comm, RATE, ITERATIONS, turns=4)

    def report(self, result: Result) -> None:
        """A rank leaves its figures; the process that started the worlds reports."""
        if file := os.environ.get(RESULT):
            Path(file).write_text(json.dumps(result), encoding="utf-8")
        else:
            super().report(result)

    def tables(self, result: Result) -> list[Table]:
        table = Table(title=f"{ITERATIONS} iterations over 5,000 digits, rate {RATE}: ms per iteration")
        table.add_column("program")
        for world in WORLDS:
            table.add_column(world, justify="right")
        for name, words in PROGRAMS.items():
            table.add_row(words, *(f"{result['ms'][world][name]:.1f}" for world in WORLDS))
        table.caption = (
            f"training accuracy {result['accuracy']:.1%} everywhere; all costs are equal within "
            f"{result['difference']:.0e}. minigrad sends gradients, the plain program also 15.7 MB of samples"
        )
        return [table]

    def draw(self, result: Result) -> Figure:
        figure = Figure(figsize=(8, 4), layout="constrained")
        axes = figure.subplots()
        places = {"serial": SAND, "minigrad": BLUE, "mpi4py": ORANGE}
        for i, (name, color) in enumerate(places.items()):
            heights = [result["ms"][world][name] for world in WORLDS]
            bars = axes.barh([k + 0.27 * (i - 1) for k in range(len(WORLDS))], heights, 0.25, color=color)
            bars.set_label(PROGRAMS[name])
            axes.bar_label(bars, fmt="%.0f", padding=2)
        axes.set_yticks(range(len(WORLDS)), [fill(world, 24) for world in WORLDS.values()])
        axes.invert_yaxis()
        axes.set(xlabel="ms per iteration", title="The article's training, 60 iterations")
        axes.margins(x=0.12)
        figure.legend(loc="outside lower center")
        return figure


def program() -> list[str]:
    return ["-m", "backends", "experiment", SlowLink.name]


def figures_of(command: list[str], file: Path) -> Result:
    """Run one world, and return what its rank 0 left; raises RuntimeError with its last lines if it fails."""
    file.unlink(missing_ok=True)
    job = subprocess.Popen(
        command,
        env={**environment(RANKS), RESULT: str(file)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        errors = job.communicate(timeout=BOUND)[1]
    except BaseException:
        job.terminate()  # mpiexec ends its ranks
        job.wait(GRACE)
        raise
    if job.returncode:
        raise RuntimeError(f"a world ended with status {job.returncode}: {errors.strip()[-500:]}")
    return json.loads(file.read_text(encoding="utf-8"))


def summary(rounds: dict[str, list[Result]]) -> Result:
    """Medians of the milliseconds; the costs must be the same in every world and round."""
    results = [result for world in rounds.values() for result in world]
    expected = results[0]["costs"]["serial"]
    costs: list[list[Any]] = [costs for result in results for costs in result["costs"].values()]
    difference = max(abs(a - b) for row in costs for a, b in zip(row, expected, strict=True))
    assert difference < 1e-9, f"costs differ by {difference:.1e} between worlds, more than 1e-09"
    milliseconds = {
        world: {
            name: median(1000 * result["seconds"][name] / ITERATIONS for result in results)
            for name in PROGRAMS
        }
        for world, results in rounds.items()
    }
    return {
        "ms": milliseconds,
        "accuracy": results[0]["accuracy"],
        "difference": difference,
        "bits_per_second": LINK,
    }
