"""Times messages and all-reduces: thread ranks and MPI processes, by size, in one run.

python benchmarks/messages.py                       # the tables, two ranks
python benchmarks/messages.py --largest 4194304     # less time and memory
python benchmarks/messages.py --rounds 9 --json messages.json
"""

from __future__ import annotations

import json
import os
import random
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from backends.comm import Communicator, collectives, run_ranks
from backends.comm.collectives import naive_allreduce
from backends.comm.collectives.link import one_way
from backends.comm.shared_memory_allreduce import SharedMemoryAllreduce
from backends.launch.launch import load_mpi, mpi_problem, printed_start_line, under_mpiexec
from backends.launch.supervise import supervise

SIZES = [8, 1 << 10, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 26]
LEAST_BYTES, MOST_REPEATS = 1 << 27, 200  # a figure of one round covers this much, but no more calls
Figures = dict[str, dict[int, list[float]]]  # what -> bytes -> seconds, one for each round
Calls = dict[str, tuple[Callable[[], Any], np.ndarray]]  # what -> the call, and the numbers written before it
RESULT = "MINIGRAD_MESSAGES"  # where rank 0 leaves its figures
console = Console()


def main(
    rounds: Annotated[int, typer.Option(min=1)] = 5,
    ranks: Annotated[int, typer.Option(min=2, help="in the all-reduce; messages go from 0 to 1")] = 2,
    largest: Annotated[int, typer.Option(help="bytes")] = SIZES[-1],
    json_file: Annotated[Path | None, typer.Option("--json", help="write the figures there")] = None,
) -> None:
    """Print latency and bandwidth of each transport, and all-reduce by size and algorithm."""
    sizes = [size for size in SIZES if size <= largest]
    if under_mpiexec():
        over_mpi(sizes, rounds)
        return
    if problem := mpi_problem():
        console.print(problem)
        raise typer.Exit(2)
    figures = {"threads": run_ranks(2, lambda comm: messages(comm, sizes, rounds))[0]}
    with tempfile.TemporaryDirectory() as folder:
        os.environ[RESULT] = str(Path(folder) / "figures.json")
        line = printed_start_line(ranks, [str(Path(__file__).resolve()), *sys.argv[1:]])
        if status := supervise(*line, saves=True):
            raise typer.Exit(status)
        for name, times in json.loads(Path(os.environ[RESULT]).read_text(encoding="utf-8")).items():
            figures[name] = {what: {int(n): t for n, t in by.items()} for what, by in times.items()}
    console.print(message_table(figures["threads"]["message"], figures["mpi"]["message"]))
    console.print(allreduce_table(figures["allreduce"], ranks))
    console.print(name_table(figures["by name"], ranks))
    console.print(collective_table(figures["collectives"], ranks))
    if json_file is not None:
        json_file.write_text(
            json.dumps({"rounds": rounds, "ranks": ranks, "seconds": figures}), encoding="utf-8"
        )


def over_mpi(sizes: list[int], rounds: int) -> None:
    """What one MPI rank measures; rank 0 leaves all figures in the file RESULT names."""
    comm = load_mpi()()
    if sys.platform == "linux":  # a core for each rank: two on one core take turns, and all figures are those
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[comm.rank % len(cores)]})
    figures = {
        "mpi": messages(comm, sizes, rounds),
        "allreduce": allreduces(comm, sizes, rounds),
        "by name": in_turns(comm, sizes, rounds, by_name),
        "collectives": in_turns(comm, sizes, rounds, ours_and_mpis),
    }
    if comm.rank == 0:
        Path(os.environ[RESULT]).write_text(json.dumps(figures), encoding="utf-8")
    comm.close()


def repeats(nbytes: int) -> int:
    return max(4, min(MOST_REPEATS, LEAST_BYTES // max(1, nbytes)))


def messages(comm: Communicator, sizes: list[int], rounds: int) -> Figures:
    """Seconds one way between ranks 0 and 1, all sizes in each round."""
    times: dict[int, list[float]] = {size: [] for size in sizes}
    for _ in range(rounds + 1):  # the first warms up
        for size in sizes:
            times[size].append(one_way(comm, 0, 1, size, repeats(size)))
    return {"message": {size: row[1:] for size, row in times.items()}}


def allreduces(comm: Any, sizes: list[int], rounds: int) -> Figures:
    """Seconds of one all-reduce of float32, the algorithms in turns, in another order each round."""
    from mpi4py import MPI

    window = SharedMemoryAllreduce(comm)

    def calls(comm: Any, size: int) -> Calls:
        x, out = np.ones(size // 4, np.float32), np.empty(size // 4, np.float32)
        shared = window.array(x.shape, x.dtype)
        return {
            "naive": (lambda: naive_allreduce(comm, x), x),
            "MPI": (lambda: comm.mpi.Allreduce(x, out), x),
            "MPI in place": (lambda: comm.mpi.Allreduce(MPI.IN_PLACE, x), x),
            "Iallreduce in place": (lambda: comm.mpi.Iallreduce(MPI.IN_PLACE, x).Wait(), x),
            "MPIComm": (lambda: comm.allreduce(x), x),
            "window, copied": (lambda: window(comm, x), x),
            "window": (lambda: window(comm, shared), shared),
        }

    return in_turns(comm, sizes, rounds, calls)


def by_name(comm: Any, size: int) -> Calls:
    """The all-reduces of ``--allreduce``, of an array as ``DataParallel`` allocates it: shared, if large."""
    x = comm.array(size // 4, np.float32)
    return {name: (partial(allreduce, comm, x), x) for name, allreduce in collectives.ALLREDUCES.items()}


def ours_and_mpis(comm: Any, size: int) -> Calls:
    """Each other collective by our messages and by MPI's own call; ``size`` bytes are all that a rank has."""
    x = np.ones(size // 4, np.float32)
    parts = np.array_split(x, comm.size)
    calls: Calls = {}
    for ours, argument in (
        (collectives.broadcast, x),
        (collectives.scatter, parts if comm.rank == 0 else None),
        (collectives.gather, parts[comm.rank]),
        (collectives.allgather, parts[comm.rank]),
        (collectives.reduce_scatter, parts),
        (collectives.alltoall, parts),
    ):
        calls[ours.__name__] = partial(ours, comm, argument), x
        calls[f"{ours.__name__}, MPI"] = partial(comm.collective, ours, argument), x
    calls["barrier"] = partial(collectives.barrier, comm), x
    calls["barrier, MPI"] = partial(comm.collective, collectives.barrier), x
    return calls


def in_turns(comm: Any, sizes: list[int], rounds: int, calls_of: Callable[[Any, int], Calls]) -> Figures:
    """Seconds of each call by size: in each round all sizes, and all calls in another order."""
    calls = {size: calls_of(comm, size) for size in sizes}
    names = list(calls[sizes[0]])
    times: Figures = {name: {size: [] for size in sizes} for name in names}
    order = random.Random(0)  # the same on all ranks
    for turn in range(rounds + 1):  # the first warms up
        for size in sizes:
            for name in order.sample(names, len(names)):
                seconds = timed(comm, *calls[size][name], repeats(size))
                if turn:
                    times[name][size].append(seconds)
    return times


def timed(comm: Any, call: Callable[[], Any], own: np.ndarray, repeat: int) -> float:
    """Seconds of ``call`` on the slowest rank, just after each has written its ``own`` numbers.

    A backward pass does so, too.
    """
    seconds = []
    for _ in range(repeat + repeat // 2):
        own[...] = 1
        comm.mpi.Barrier()
        start = perf_counter()
        call()
        seconds.append(perf_counter() - start)
    mean = sum(seconds[-repeat:]) / repeat  # before that the caches hold what ran before
    return float(comm.all_rows(np.array([mean]), "for all ranks to compare their times").max())


def message_table(threads: dict[int, list[float]], mpi: dict[int, list[float]]) -> Table:
    table = Table(title="One message (start_send, recv)")
    for heading in ("bytes", "threads us", "threads GB/s", "MPI us", "MPI GB/s"):
        table.add_column(heading, justify="right")
    for size in threads:
        cells = []
        for times in (threads[size], mpi[size]):
            cells += [f"{median(times) * 1e6:.1f}", f"{size / median(times) / 1e9:.2f}"]
        table.add_row(text_of(size), *cells)
    return table


def allreduce_table(figures: Figures, ranks: int) -> Table:
    table = Table(title=f"All-reduce of float32 over {ranks} ranks, us")
    table.add_column("bytes", justify="right")
    for name in figures:
        table.add_column(name, justify="right")
    table.add_column("best in place / window", justify="right")
    for size in figures["window"]:
        mine = figures["window"][size]
        rivals = [figures[name][size] for name in ("MPI in place", "Iallreduce in place")]
        ratio = min(median(a / b for a, b in zip(rival, mine, strict=True)) for rival in rivals)
        cells = [f"{median(by[size]) * 1e6:.1f}" for by in figures.values()]
        table.add_row(text_of(size), *cells, f"{ratio:.2f}")
    return table


def name_table(figures: Figures, ranks: int) -> Table:
    table = Table(title=f"All-reduce of float32 over {ranks} ranks by --allreduce, us")
    table.add_column("bytes", justify="right")
    for name in figures:
        table.add_column(name, justify="right")
    for size in figures["mpi"]:
        table.add_row(text_of(size), *(f"{median(by[size]) * 1e6:.1f}" for by in figures.values()))
    return table


def collective_table(figures: Figures, ranks: int) -> Table:
    table = Table(title=f"Collectives over {ranks} ranks, ours / MPI's own, us")
    table.add_column("bytes", justify="right")
    pairs = [name for name in figures if f"{name}, MPI" in figures]
    for name in pairs:
        table.add_column(name, justify="right")
    for size in figures["barrier"]:
        both = [[median(figures[name][size]) * 1e6 for name in (own, f"{own}, MPI")] for own in pairs]
        table.add_row(text_of(size), *(f"{ours:.0f} / {mpis:.0f}" for ours, mpis in both))
    return table


def text_of(nbytes: int) -> str:
    for unit, size in (("MB", 1 << 20), ("KB", 1 << 10)):
        if nbytes >= size:
            return f"{nbytes // size} {unit}"
    return f"{nbytes} B"


if __name__ == "__main__":
    typer.run(main)
