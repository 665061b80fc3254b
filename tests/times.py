"""Where the time of a test run goes: ``python -m tests.times``, followed by any arguments of pytest.

It prints a Markdown table by folder: how long its tests took, the CPU time of the workers and that of the
commands that they started, and how long a worker waited for something else than a processor. The seconds of
each file go to ``tests/seconds.json``, by which ``conftest`` orders the files, where all tests ran.
"""

from __future__ import annotations

import json
import os
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


@dataclass(frozen=True)
class Times:
    """Seconds of a clock, of this process's CPU time, and of its finished children's."""

    clock: float = 0.0
    own: float = 0.0
    children: float = 0.0

    @classmethod
    def now(cls) -> Times:
        cpu = os.times()
        return cls(time.monotonic(), cpu.user + cpu.system, cpu.children_user + cpu.children_system)

    def __add__(self, other: Times) -> Times:
        return Times(self.clock + other.clock, self.own + other.own, self.children + other.children)

    def __sub__(self, other: Times) -> Times:
        return Times(self.clock - other.clock, self.own - other.own, self.children - other.children)

    @property
    def waiting(self) -> float:
        return max(0.0, self.clock - self.own - self.children)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item):
    """Append the times of a test, with its fixtures, to this worker's file."""
    start = Times.now()
    result = yield
    file = Path(os.environ[FOLDER]) / f"{os.getpid()}.jsonl"
    with file.open("a", encoding="utf-8") as lines:
        print(json.dumps([item.nodeid, *astuple(Times.now() - start)]), file=lines)
    return result


def measured(folder: Path) -> list[tuple[str, Times]]:
    lines = [line for file in folder.glob("*.jsonl") for line in file.read_text("utf-8").splitlines()]
    return [(name, Times(*times)) for name, *times in map(json.loads, lines)]


def by(key: Callable[[str], str], tests: list[tuple[str, Times]]) -> dict[str, tuple[int, Times]]:
    """The number of tests and the sum of their times for each value of ``key(name)``, the longest first."""
    sums: dict[str, tuple[int, Times]] = defaultdict(lambda: (0, Times()))
    for name, times in tests:
        number, total = sums[key(name)]
        sums[key(name)] = (number + 1, total + times)
    return dict(sorted(sums.items(), key=lambda entry: -entry[1][1].clock))


def file_of(name: str) -> str:
    return name.partition("::")[0]


def folder_of(name: str) -> str:
    file = Path(file_of(name))
    return file.as_posix() if file.parent.name == "tests" else file.parent.as_posix()


def table(tests: list[tuple[str, Times]]) -> str:
    """Seconds by folder, in Markdown."""
    lines = [
        "| tests in | tests | seconds | CPU of the workers | CPU of commands | waiting |",
        "|---" * 6 + "|",
    ]
    rows = [*by(folder_of, tests).items(), *by(lambda name: "all", tests).items()]
    for name, (number, times) in rows:
        numbers = [f"{x:,.0f}" for x in (number, times.clock, times.own, times.children, times.waiting)]
        lines.append(f"| {' | '.join([name, *numbers])} |")
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    """Run pytest, print the table, and write the seconds of the files; pytest's exit status."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pytest", "-p", "tests.times", *arguments]
        status = subprocess.run(command, cwd=ROOT, env={**os.environ, FOLDER: folder}).returncode
        tests = measured(Path(folder))
    print(table(tests))
    if not arguments:
        seconds = {file: round(times.clock, 1) for file, (_, times) in by(file_of, tests).items()}
        SECONDS.write_text(json.dumps(seconds, indent=0) + "\n", encoding="utf-8")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
