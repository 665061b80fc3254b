"""An experiment: what it measures on MPI processes, its table, and its picture."""

from __future__ import annotations

import json
import platform
import sys
from abc import ABC, abstractmethod
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from matplotlib import rc_context
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_limits

from backends.cli.run_folder import write_json
from backends.launch.launch import mpi_problem, run
from backends.process.cores import cores
from backends.words import counted
from minigrad.figures import STYLE, save

if TYPE_CHECKING:
    from backends.comm.mpi import MPIComm

Result = dict[str, Any]
FOLDER = Path("runs/experiments")
MEASURED = Path(__file__).with_name("measured")
RANKS = 2


def read_result(name: str) -> Result:
    """The result of an experiment that the lessons show, as it was measured on a machine of two cores."""
    return json.loads((MEASURED / f"{name}.json").read_text(encoding="utf-8"))


def this_machine() -> str:
    """The name of the processor, and the number of cores that this process may use."""
    name = platform.processor() or platform.machine()
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), name)
    return f"{counted(cores(), 'core')} of {name}"


def source_of(result: Result) -> str:
    """When and where a result was measured, in words."""
    return f"measured on {result['date']}, on {result['machine']}"


class Experiment(ABC):
    """``measure`` runs on both ranks of an MPI job, with one thread each for linear algebra.

    The result is a JSON object with the figures of rank 0. Nothing is asserted about the clock; what is
    mathematics is asserted in ``measure``, which raises AssertionError with both numbers.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    minutes: ClassVar[int]  # that it takes on two idle cores

    @abstractmethod
    def measure(self, comm: MPIComm) -> Result:
        """Run the experiment; rank 0's result counts."""

    @abstractmethod
    def tables(self, result: Result) -> list[Table]:
        """The result as tables."""

    @abstractmethod
    def draw(self, result: Result) -> Figure:
        """The result as one picture."""

    def say(self, comm: MPIComm, text: str) -> None:
        """Print a line of progress, on rank 0."""
        if comm.rank == 0:
            print(f"   {text}", flush=True)

    def start(self) -> int:
        """Run it on two MPI processes, and report; returns the exit status."""
        if problem := mpi_problem(by_srun=True):
            raise RuntimeError(f"an experiment measures MPI processes: {problem.partition(', or use')[0]}")
        return run(RANKS, "mpi", self.work)

    def work(self, comm: Any) -> None:
        """What each rank does."""
        with threadpool_limits(1):
            result = self.measure(comm)
        if comm.rank == 0:
            self.report({"date": date.today().isoformat(), "machine": this_machine(), **result})

    def report(self, result: Result) -> None:
        """Print the tables; write the JSON and the picture."""
        folder = FOLDER / self.name
        folder.mkdir(parents=True, exist_ok=True)
        console = Console(width=None if sys.stdout.isatty() else 100)
        for table in self.tables(result):
            console.print(table)
        console.print(source_of(result))
        write_json(folder / "result.json", result)
        with rc_context(STYLE):
            save(self.draw(result), folder / "result.png")
        console.print(f"figures in {folder / 'result.json'}, picture in {folder / 'result.png'}")
