"""The training of the lecture's article on distributed neural networks with MPI, in two programs.

5,000 digits, logistic units, rate 2, 1,000 iterations over all samples. One program is minigrad's data
parallelism, the other mpi4py alone: it broadcasts the weights, scatters the samples and gathers the gradients
in every iteration. Both have the same cost in every iteration.
"""

from __future__ import annotations

from itertools import pairwise
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure
from rich.table import Table

from minigrad.figures import BLUE, GREY, ORANGE, line
from minigrad.mnist import load
from minigrad.models import find_net

from .experiment import Experiment, Result
from .training_run import TrainingRun, backend_of

if TYPE_CHECKING:
    from backends.comm.mpi import MPIComm

PROGRAMS = {
    "serial": "minigrad, one process",
    "minigrad": "minigrad, two processes",
    "mpi4py": "mpi4py alone, two processes",
}
RATE, ITERATIONS = 2.0, 1000
MOST_COST, LEAST_ACCURACY, SAME = 0.25, 0.97, 1e-9


class Article(Experiment):
    name = "article"
    title = "three layers of logistic units on 5,000 digits: 1,000 iterations with Bcast, Scatter and Gather"
    minutes = 1

    def measure(self, comm: MPIComm) -> Result:
        result = train_by_programs(comm, RATE, ITERATIONS)
        if comm.rank == 0:
            cost, accuracy = result["costs"]["minigrad"][-1], result["accuracy"]
            assert cost <= MOST_COST, f"the cost is {cost:.4f} in the end, more than {MOST_COST}"
            assert accuracy >= LEAST_ACCURACY, f"accuracy {accuracy:.2%}, less than {LEAST_ACCURACY:.0%}"
        return result

    def tables(self, result: Result) -> list[Table]:
        table = Table(title="1,000 iterations over 5,000 digits, rate 2")
        for column in ("program", "cost in the end", "ms per iteration", "speed, serial = 1"):
            table.add_column(column, justify="left" if column == "program" else "right")
        for name, words in PROGRAMS.items():
            seconds, costs = result["seconds"][name], result["costs"][name]
            speed = result["seconds"]["serial"] / seconds
            table.add_row(words, f"{costs[-1]:.4f}", f"{1000 * seconds / len(costs):.1f}", f"{speed:.2f}")
        table.caption = (
            f"training accuracy {result['accuracy']:.2%}; in no iteration do the costs of the two programs "
            f"differ by more than {result['difference']:.0e}"
        )
        return [table]

    def draw(self, result: Result) -> Figure:
        figure = Figure(figsize=(7, 4.2), layout="constrained")
        axes, costs = figure.subplots(), result["costs"]["minigrad"]
        axes.plot(costs, **line(BLUE) | {"lw": 4, "alpha": 0.5}, label=PROGRAMS["minigrad"])
        axes.plot(result["costs"]["mpi4py"], **line(ORANGE), label=PROGRAMS["mpi4py"])
        axes.axhline(MOST_COST, **line(GREY) | {"lw": 1}, label=f"cost {MOST_COST}")
        axes.set(xlabel="iteration", ylabel="cost", yscale="log")
        axes.set_yticks([0.2, 0.5, 1, 2, 5], ["0.2", "0.5", "1", "2", "5"])
        axes.set_yticks([], minor=True)
        rises = f"{sum(later > cost for cost, later in pairwise(costs))} of {len(costs):,} iterations"
        axes.set_title(
            f"Two programs, one curve; accuracy {result['accuracy']:.1%} in the end\n"
            f"(it rises in {rises}: rate {RATE:g} is near the stable limit, lesson 01)"
        )
        axes.legend()
        return figure


def train_by_programs(comm: MPIComm, rate: float, iterations: int, turns: int = 20) -> Result:
    """The costs and the seconds of ``PROGRAMS``, which take turns; on rank 0.

    Raises AssertionError where the costs of minigrad and of mpi4py differ by 1e-9 or more in an iteration.
    """
    digits, net = load("mnist5k"), find_net("sigmoid")
    n, own = len(digits.train), comm.split(comm.rank)
    how = {"batch_size": n, "dtype": "float64", "lr": rate}
    runs = {
        "serial": TrainingRun(net, digits, backend_of(net, "serial", own, n), alone=True, **how),
        "minigrad": TrainingRun(net, digits, backend_of(net, "data parallel", comm, n), **how),
    }
    plain = PlainProgram(comm, runs["minigrad"], rate)
    for turn in range(turns):
        for run in (*runs.values(), plain):
            run.advance(comm, iterations // turns)
        if comm.rank == 0 and turn % 5 == 4:
            print(f"   {(turn + 1) * (iterations // turns)} iterations", flush=True)
    accuracy = runs["minigrad"].accuracy(comm, runs["minigrad"].train)
    costs = {name: run.losses for name, run in runs.items()} | {"mpi4py": plain.costs}
    seconds = {name: run.seconds for name, run in runs.items()} | {"mpi4py": plain.seconds}
    difference = max((abs(a - b) for a, b in zip(costs["minigrad"], plain.costs, strict=False)), default=0.0)
    assert difference < SAME, f"the costs of the programs differ by {difference:.1e}, more than {SAME:.0e}"
    for run in runs.values():
        run.close()
    return {"costs": costs, "seconds": seconds, "accuracy": accuracy, "difference": difference}


class PlainProgram:
    """``mpi_program`` from the weights that ``run`` starts from, a few iterations at a time."""

    def __init__(self, comm: MPIComm, run: TrainingRun, rate: float):
        self.rate = rate
        self.weights = [parameter.data.copy() for parameter in run.model.parameters()]
        on_0 = comm.rank == 0
        self.x = run.train.x.reshape(len(run.train), -1).copy() if on_0 else None
        self.y = run.train.y.astype(np.float64) if on_0 else None
        self.costs: list[float] = []  # on rank 0
        self.seconds = 0.0

    def advance(self, comm: MPIComm, iterations: int) -> None:
        from . import mpi_program

        comm.mpi.Barrier()
        start = perf_counter()
        self.costs += mpi_program.train(comm.mpi, self.x, self.y, self.weights, self.rate, iterations)
        self.seconds += perf_counter() - start
