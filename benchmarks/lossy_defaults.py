"""Trains by the defaults of every strategy that loses something, and compares with serial test accuracy.

Each run is one `minigrad train` of 8 epochs on 5,000 digits, with the settings that the command takes by
itself; the serial run has the same seed. A row is written as soon as it is there, in Markdown: accuracies of
the seeds, then what a seed has more or less than the serial run of this seed, as the median and the worst.

python benchmarks/lossy_defaults.py --net mlp                           # all strategies, threads and MPI
python benchmarks/lossy_defaults.py --strategy server --net lenet --workers 3 --transport mpi --seeds 3
python benchmarks/lossy_defaults.py --strategy server --net mlp --option stale_rate=naive
python benchmarks/lossy_defaults.py --net mlp --loaded 8                # beside eight processes that burn
"""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from backends.launch.launch import THREAD_VARIABLES
from minigrad.metric import ACCURACY
from minigrad.models import NETS as ALL

STRATEGIES = (
    "server",
    "compressed",
    "local-sgd",
    "diloco",
    "elastic-averaging",
    "parallel-sgd",
    "pipedream",
    "backup-workers",
)
NETS = tuple(name for name, net in ALL.items() if net.metric is ACCURACY)
TRANSPORTS = ("threads", "mpi")
FAILED = 0.0  # the accuracy of a training that ended with an error


def main(
    strategy: Annotated[str, typer.Option(help=f"some of {','.join(STRATEGIES)}")] = ",".join(STRATEGIES),
    net: Annotated[str, typer.Option(help=f"some of {','.join(NETS)}")] = "mlp",
    workers: Annotated[str, typer.Option(help="how many; a server is one rank more")] = "2,3,4",
    servers: Annotated[str, typer.Option(help="how many, for server")] = "1",
    transport: Annotated[str, typer.Option(help=f"some of {','.join(TRANSPORTS)}")] = ",".join(TRANSPORTS),
    seeds: Annotated[int, typer.Option(min=1)] = 10,
    epochs: Annotated[int, typer.Option(min=1)] = 8,
    option: Annotated[list[str] | None, typer.Option(help="NAME=VALUE, handed on to the strategy")] = None,
    loaded: Annotated[int, typer.Option(min=0, help="processes that burn a core each meanwhile")] = 0,
) -> None:
    """Print a Markdown row for each strategy, net, number of workers and transport."""
    machine = f"{loaded} burn" if loaded else "as it is"
    print("| strategy | net | ranks | by | machine | seeds | least | median | most | from serial | worst |")
    print("|---|---|---|---|---|---|---|---|---|---|---|", flush=True)
    with burning(loaded):
        for one in some(strategy, STRATEGIES):
            for name in some(net, NETS):
                for served in map(int, servers.split(",")) if one == "server" else (0,):
                    for number in map(int, workers.split(",")):
                        for by in some(transport, TRANSPORTS):
                            words = [*axis_of(one), str(number + served), "--transport", by]
                            words += ["--servers", str(served)] if served else []
                            words += [text for pair in option or () for text in setting(one, pair)]
                            kind = ", ".join([one, *(option or ())])
                            ranks = f"{number} + {served}" if served else str(number)
                            print(
                                f"| {kind} | {name} | {ranks} | {by} | {machine} | {seeds} |",
                                row(name, tuple(words), seeds, epochs),
                                flush=True,
                            )


def axis_of(strategy: str) -> list[str]:
    """The flags that choose the strategy, and last the one of its number of ranks."""
    if strategy == "pipedream":
        return ["--schedule", strategy, "--pipe"]
    return ["--strategy", strategy, "--data"]


def setting(strategy: str, pair: str) -> list[str]:
    """The flags for one NAME=VALUE: an asynchronous pipeline has a flag for each of its options."""
    name, _, value = pair.partition("=")
    return [f"--{name.replace('_', '-')}", value] if strategy == "pipedream" else ["--option", pair]


def some(text: str, choices: tuple[str, ...]) -> list[str]:
    """The names in a list with commas; BadParameter for one that is no choice."""
    names = text.split(",")
    if unknown := [name for name in names if name not in choices]:
        raise typer.BadParameter(f"unknown {unknown[0]!r}; choose some of {','.join(choices)}")
    return names


def row(net: str, words: tuple[str, ...], seeds: int, epochs: int) -> str:
    """The rest of a line: the accuracies, their differences from serial's, and the CPU seconds."""
    expected = [trained(net, (), seed, epochs) for seed in range(seeds)]
    start = cpu_seconds()
    try:
        actual = [trained(net, words, seed, epochs) for seed in range(seeds)]
    except ValueError as error:
        return f"{error} |"
    behind = [100 * (a - b) for a, b in zip(actual, expected, strict=True)]
    figures = [f"{100 * x:.1f} %" for x in (min(actual), median(actual), max(actual))]
    figures += [f"{median(behind):+.1f}", f"{min(behind):+.1f}"]
    print(f"{cpu_seconds() - start:.0f} s of CPU time", file=sys.stderr)
    return " | ".join(figures) + " |"


@cache
def trained(net: str, words: Sequence[str], seed: int, epochs: int) -> float:
    """The test accuracy of one run; ``FAILED`` where it diverged, ValueError where it could not begin."""
    with TemporaryDirectory() as folder:
        file = Path(folder, "run.json")
        command = [sys.executable, "-m", "backends", "train", "--net", net]
        command += ["--seed", str(seed), "--epochs", str(epochs), "--json", str(file), *words]
        environment = os.environ | dict.fromkeys(THREAD_VARIABLES, "1")  # ranks are enough for the cores
        quiet = {"capture_output": True, "text": True, "stdin": subprocess.DEVNULL}
        run = subprocess.run(command, cwd=folder, env=environment, **quiet)
        if run.returncode == 0:
            return json.loads(file.read_text(encoding="utf-8"))["test_accuracy"]
        said = run.stderr.strip().splitlines() or [f"status {run.returncode}"]
        if any("try a smaller --lr" in line for line in said):
            return FAILED
        raise ValueError(next((line for line in said if line.startswith("minigrad:")), said[-1]))


def cpu_seconds() -> float:
    """CPU seconds of all processes that this one has waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@contextmanager
def burning(processes: int) -> Iterator[None]:
    """Let so many processes keep a core busy each, until the end of the block."""
    context = multiprocessing.get_context("spawn")
    burners = [context.Process(target=burn, args=(os.getpid(),), daemon=True) for _ in range(processes)]
    try:
        for burner in burners:
            burner.start()
        yield
    finally:
        for burner in burners:
            burner.terminate()
            burner.join()


def burn(parent: int) -> None:
    """Compute nothing, for as long as ``parent`` is there."""
    while os.getppid() == parent:
        sum(range(100_000))


if __name__ == "__main__":
    typer.run(main)
