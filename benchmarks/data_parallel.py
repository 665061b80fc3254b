"""Times data parallelism on two MPI processes against one, and against PyTorch's DistributedDataParallel.

All peers take turns in the same two processes, in shuffled order, one BLAS thread each; a speedup is the
median over the rounds of one process's time divided by the peer's.

python benchmarks/data_parallel.py                             # the table
python benchmarks/data_parallel.py --only W2 --rounds 30 --json data_parallel.json
python benchmarks/data_parallel.py --link 1gbit --only W4      # two "hosts", needs root: what overlap hides
"""

from __future__ import annotations

import json
import os
import random
import sys
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Annotated, Any

import typer
from data_parallel_peers import Peer, peers, start_torch, stop_torch, workload
from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_limits

from backends.launch.launch import THREAD_VARIABLES, load_mpi, mpi_problem, printed_start_line, under_mpiexec
from backends.launch.supervise import supervise

RANKS, LEAST_SECONDS, STEPS_COMPARED = 2, 0.15, 4
TARGETS = {"W2": (1.7, 1.5), "W3": (1.75, 1.65), "W4": (1.85, 1.8)}  # speedup of the best, of replicated
RESULT = "MINIGRAD_DATA_PARALLEL"  # where rank 0 leaves its figures
Times = dict[str, list[float]]  # seconds per step of each peer, one for each round
console = Console(width=None if sys.stdout.isatty() else 110)


def main(
    only: Annotated[str, typer.Option(help="workloads by name, comma-separated")] = "",
    rounds: Annotated[int, typer.Option(min=1)] = 15,
    json_file: Annotated[Path | None, typer.Option("--json", help="write the figures there")] = None,
    batch: Annotated[int | None, typer.Option(min=RANKS, help="samples, instead of the workload's")] = None,
    link: Annotated[str | None, typer.Option(help="1gbit or 100mbit: two hosts on such a network")] = None,
) -> None:
    """Print time per step and speedup of every strategy, or with --link what each hides of communication."""
    names = [name.strip().upper() for name in only.split(",")] if only else list(TARGETS)
    if unknown := [name for name in names if name not in TARGETS]:
        raise typer.BadParameter(f"unknown workload {unknown[0]}; choose from {', '.join(TARGETS)}")
    titles = {name: f"{name} {workload(name, batch).title}" for name in names}
    if link is not None:
        from data_parallel_link import LINKS, hidden_table, measure_hidden, over_link

        if link not in LINKS:
            raise typer.BadParameter(f"unknown link {link!r}; choose from {', '.join(LINKS)}")
        if under_mpiexec():
            comm = load_mpi()()
            leave({name: measure_hidden(comm, workload(name, batch), rounds) for name in names})
            comm.close()
            return
        figures = over_link(link, sys.argv[1:], console)
        for name in names:
            console.print(hidden_table(titles[name], link, {how: by[name] for how, by in figures.items()}))
    elif under_mpiexec():
        comm = load_mpi()()
        start_torch(comm)
        leave({name: measure(comm, workload(name, batch), rounds) for name in names})
        stop_torch()
        comm.close()
        return
    else:
        figures = on_this_machine(__file__, sys.argv[1:])
        for name in names:
            console.print(speedup_table(titles[name], TARGETS[name], figures[name]))
    if json_file is not None:
        json_file.write_text(
            json.dumps({"rounds": rounds, "batch": batch, "link": link, "seconds": figures}), encoding="utf-8"
        )


def on_this_machine(script: str, arguments: list[str]) -> dict[str, Any]:
    """What two MPI processes of ``script`` measured, by workload."""
    if problem := mpi_problem():
        console.print(problem)
        raise typer.Exit(2)
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, "1"))
    with tempfile.TemporaryDirectory() as folder:
        os.environ[RESULT] = str(Path(folder) / "figures.json")
        line = printed_start_line(RANKS, [str(Path(script).resolve()), *arguments])
        if status := supervise(*line, saves=True):
            raise typer.Exit(status)
        return json.loads(Path(os.environ[RESULT]).read_text(encoding="utf-8"))


def leave(figures: dict[str, Any]) -> None:
    """Rank 0's figures, where the process that started it looks."""
    if figures and all(figures.values()):
        Path(os.environ[RESULT]).write_text(json.dumps(figures), encoding="utf-8")


def measure(comm: Any, work: Any, rounds: int) -> Times:
    """Seconds per step of every peer; first their losses are compared. Nothing but on rank 0."""
    with threadpool_limits(1):
        peers_by_name = peers(work, comm)
        check_losses(comm, peers_by_name, work.tolerance)
        return interleaved(comm, peers_by_name, rounds)


def check_losses(comm: Any, peers_by_name: dict[str, Peer], tolerance: float) -> None:
    """Raises RuntimeError where a few steps from the same weights lead a peer elsewhere than serial ones."""
    losses = {}
    for name, peer in peers_by_name.items():
        own = [peer.step() for _ in range(STEPS_COMPARED)][-1] if comm.rank == 0 or not peer.alone else 0.0
        every = comm.mpi.allgather(own)
        losses[name] = every[0] if peer.whole else sum(every) / comm.size
    serial = losses["serial"]
    for name, loss in losses.items():
        if not name.startswith("half batch") and not abs(loss - serial) <= tolerance * abs(serial):
            raise RuntimeError(
                f"after {STEPS_COMPARED} steps {name} has the loss {loss}, serial {serial}; "
                f"they may differ by {tolerance:g} of it"
            )


def interleaved(comm: Any, peers_by_name: dict[str, Peer], rounds: int) -> Times:
    """Seconds per step of each peer in each round, in an order that is shuffled but the same on all ranks.

    Rank 0 prints each round as it is measured: all of them take minutes.
    """
    repeats = {name: 1 for name in peers_by_name}
    for name, peer in peers_by_name.items():
        once = comm.mpi.bcast(seconds(comm, peer, 2))
        repeats[name] = max(2, round(LEAST_SECONDS / once))
    times: Times = {name: [] for name in peers_by_name}
    order = random.Random(0)
    for number in range(1, rounds + 1):
        for name in order.sample(list(peers_by_name), len(peers_by_name)):
            times[name].append(seconds(comm, peers_by_name[name], repeats[name]))
        if comm.rank == 0:
            row = ", ".join(f"{name} {t[-1] * 1000:.1f}" for name, t in times.items())
            console.print(f"round {number} of {rounds}, ms a step: {row}", highlight=False, soft_wrap=True)
    return times if comm.rank == 0 else {}


def seconds(comm: Any, peer: Peer, repeats: int) -> float:
    """Time per step, until the last rank is done; the first is not counted. Who has no part sleeps."""
    taking_part = comm.rank == 0 or not peer.alone
    if taking_part:
        peer.step()
    if not peer.alone:
        comm.barrier_with("for all ranks to begin")
    start = perf_counter()
    for _ in range(repeats if taking_part else 0):
        peer.step()
    if not peer.alone:
        comm.barrier_with("for all ranks to end")
    elapsed = perf_counter() - start
    comm.barrier_with("for all ranks to go on")
    return elapsed / repeats


def speedup_table(title: str, targets: tuple[float, float], times: Times) -> Table:
    """Milliseconds and speedups; the targets are for the best strategy and for the replicated one."""
    speedups = {peer: median_ratio(times["serial"], t) for peer, t in times.items()}
    if "torch" in times:
        for peer in ("torch", "torch DDP"):
            speedups[peer] = median_ratio(times["torch"], times[peer])
    ours = [peer for peer in times if not peer.startswith(("serial", "half batch", "torch"))]
    best = max(ours, key=speedups.__getitem__)
    ddp = times.get("torch DDP")
    least = {"replicated": targets[1], best: targets[0]}
    table = Table(
        title=f"{title}; {RANKS} MPI processes, one BLAS thread each",
        caption="speedup: over serial, of torch DDP over torch; the half batch does not communicate: a bound "
        "for all that update everything on every rank",
        caption_justify="left",
    )
    for column in ("", "ms", "speedup", "target", "met", "of DDP's time"):
        table.add_column(column, justify="left" if not column else "right", no_wrap=True)
    for peer, t in times.items():
        target, of_ddp = least.get(peer), f"{median_ratio(t, ddp):.2f}" if ddp and peer in ours else ""
        met = "" if target is None else "yes" if speedups[peer] >= target else "no"
        cells = f"{median(t) * 1000:.2f}", f"{speedups[peer]:.2f}", f">= {target}" if target else "", met
        table.add_row(peer, *cells, of_ddp)
    return table


def median_ratio(a: list[float], b: list[float]) -> float:
    return median(x / y for x, y in zip(a, b, strict=True))


if __name__ == "__main__":
    typer.run(main)
