"""Where the time of a test run goes: ``python -m tests.times``, followed by any arguments of pytest.

It prints a table by folder: how long its tests took, the CPU time of workers and of the commands that they
started, how many these were, and how long a worker waited for something else than a processor. A second table
has the CPU time of a process that starts and does nothing, and a line the memory of the largest worker.
Without arguments the seconds of each file go to ``tests/seconds.json``, by which ``conftest`` orders the
files.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import astuple, dataclass
from pathlib import Path

import pytest

FOLDER = "MINIGRAD_TIMES"  # where the workers write
ROOT = Path(__file__).parents[1]
SECONDS = Path(__file__).with_name("seconds.json")
END = "what several files share, at its end"
COMMANDS: list[str] = []  # that this process has started
PROCESSES = {
    "Python": ["-c", "pass"],
    "NumPy": ["-c", "import numpy"],
    "minigrad": ["-c", "import minigrad"],
    "minigrad --version": ["-m", "backends", "--version"],
    "Numba": ["-c", "import numba"],
    "matplotlib": ["-c", "import matplotlib.figure"],
    "mpi4py": ["-c", "import mpi4py.MPI"],
    "pytest and Hypothesis": ["-c", "import hypothesis.strategies, pytest"],
}


@dataclass(frozen=True)
class Times:
    """Seconds of a clock, of this process's CPU time and of its ended children's; the commands started."""

    clock: float = 0.0
    own: float = 0.0
    children: float = 0.0
    commands: int = 0

    @classmethod
    def now(cls) -> Times:
        cpu = os.times()
        own, children = cpu.user + cpu.system, cpu.children_user + cpu.children_system
        return cls(time.monotonic(), own, children, len(COMMANDS))

    def __add__(self, other: Times) -> Times:
        return Times(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    def __sub__(self, other: Times) -> Times:
        return Times(*(a - b for a, b in zip(astuple(self), astuple(other), strict=True)))

    @property
    def waiting(self) -> float:
        return max(0.0, self.clock - self.own - self.children)


def pytest_configure() -> None:
    """Count the commands that this process starts."""
    sys.addaudithook(lambda event, facts: COMMANDS.append(facts[0]) if event == "subprocess.Popen" else None)


def recorded(name: str):
    """Append the times of what runs meanwhile to this worker's file."""
    start = Times.now()
    result = yield
    file = Path(os.environ[FOLDER]) / f"{os.getpid()}.jsonl"
    with file.open("a", encoding="utf-8") as lines:
        print(json.dumps([name, *astuple(Times.now() - start)]), file=lines)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item):
    return (yield from recorded(item.nodeid))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item):
    return (yield from recorded(item.nodeid))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None):
    return (yield from recorded(item.nodeid if nextitem is not None else END))


def pytest_sessionfinish() -> None:
    """Leave the most memory that this worker had, in MB."""
    file = Path(os.environ[FOLDER]) / f"{os.getpid()}.memory"
    file.write_text(
        f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10}", encoding="utf-8"
    )  # of KB, as Linux counts


Measured = list[tuple[str, Times]]
"""The times of each phase of each test, by the test's name."""


def measured(folder: Path) -> Measured:
    lines = [line for file in folder.glob("*.jsonl") for line in file.read_text("utf-8").splitlines()]
    return [(name, Times(*times)) for name, *times in map(json.loads, lines)]


def by(key: Callable[[str], str], phases: Measured) -> dict[str, tuple[int, Times]]:
    """The number of tests and the sum of their times for each value of ``key(name)``, the longest first."""
    tests: dict[str, set[str]] = defaultdict(set)
    sums: dict[str, Times] = defaultdict(Times)
    for name, times in phases:
        tests[key(name)].add(name)
        sums[key(name)] += times
    return {k: (len(tests[k]), sums[k]) for k in sorted(sums, key=lambda k: -sums[k].clock)}


def file_of(name: str) -> str:
    return name.partition("::")[0]


def folder_of(name: str) -> str:
    """The folder in tests/ that a test is in, or its file where that lies in tests/ itself."""
    return "/".join(file_of(name).split("/")[:2])


def table(phases: Measured) -> str:
    """Seconds by folder, in Markdown."""
    head = ["tests in", "tests", "seconds", "CPU of workers", "CPU of commands", "commands", "waiting"]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for name, (tests, t) in [*by(folder_of, phases).items(), *by(lambda name: "all", phases).items()]:
        numbers = (tests, t.clock, t.own, t.children, t.commands, t.waiting)
        lines.append(f"| {' | '.join([name, *(f'{x:,.0f}' for x in numbers)])} |")
    return "\n".join(lines)


def starts() -> str:
    """The CPU seconds of a process that imports something and ends, the least of five, in Markdown."""
    rows = {}
    for name, arguments in PROCESSES.items():
        least = []
        for _ in range(5):
            before = Times.now()
            subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
            least.append((Times.now() - before).children)
        rows[name] = f"{min(least):.2f}"
    return "\n".join(
        [f"| {' | '.join(rows)} |", "|---" * len(rows) + "|", f"| {' | '.join(rows.values())} |"]
    )


def main(arguments: list[str]) -> int:
    """Run pytest, print the tables, and write the seconds of the files; pytest's exit status."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pytest", "-p", "tests.times", *arguments]
        status = subprocess.run(command, cwd=ROOT, env={**os.environ, FOLDER: folder}).returncode
        phases = measured(Path(folder))
        largest = max(
            (int(file.read_text(encoding="utf-8")) for file in Path(folder).glob("*.memory")), default=0
        )
    print(table(phases), starts(), f"The largest worker had {largest} MB.", sep="\n\n")
    if not arguments:
        seconds = {file: round(t.clock, 1) for file, (_, t) in by(file_of, phases).items() if file != END}
        SECONDS.write_text(json.dumps(seconds, indent=0) + "\n", encoding="utf-8")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
