"""Times pipelines on two MPI processes against one, and against PyTorch's own pipelining.

All peers take turns in the same two processes, in shuffled order, one BLAS thread each; a speedup is the
median over the rounds of one process's time divided by the peer's.

python benchmarks/pipeline.py                             # the table
python benchmarks/pipeline.py --only MLP --rounds 30 --json pipeline.json --gantt pictures
"""

from __future__ import annotations

import json
import sys
import tracemalloc
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer
from data_parallel import RANKS, check_losses, console, interleaved, leave, median_ratio, on_this_machine
from data_parallel_peers import start_torch, stepper, stop_torch
from pipeline_peers import BATCHED, NETWORKS, PLAIN, SCHEDULES, network, peers, pipeline
from rich.table import Table
from threadpoolctl import threadpool_limits

from backends.comm.trace import Traced, gather_trace
from backends.launch.launch import load_mpi, under_mpiexec
from backends.pipeline.gantt import draw_pair
from backends.pipeline.schedules import find_schedule
from backends.pipeline.trace import as_trace, bubble_of, plan_of

CASES = {"MLP": ((512, 4), (1024, 8)), "W4": ((512, 4), (1024, 8))}  # samples, micro-batches
TARGETS = {4: {"plain": 1.3, "batched": 1.45}, 8: {"plain": 1.45, "batched": 1.6}}  # speedups
TRACED_STEPS = 5


def main(
    only: Annotated[str, typer.Option(help="networks by name, comma-separated")] = "",
    rounds: Annotated[int, typer.Option(min=1)] = 9,
    json_file: Annotated[Path | None, typer.Option("--json", help="write the figures there")] = None,
    gantt: Annotated[Path | None, typer.Option(help="a folder for pictures of plans and runs")] = None,
) -> None:
    """Print time per step, speedup, bubble and memory of every schedule, each table once it is measured."""
    names = [name.strip().upper() for name in only.split(",")] if only else list(NETWORKS)
    if unknown := [name for name in names if name not in NETWORKS]:
        raise typer.BadParameter(f"unknown network {unknown[0]}; choose from {', '.join(NETWORKS)}")
    if gantt is not None:
        gantt.mkdir(parents=True, exist_ok=True)
    if under_mpiexec():
        comm = load_mpi()()
        start_torch(comm)
        result = {}
        for name, batch, micro_batches in ((one, *case) for one in names for case in CASES[one]):
            figures = measure(comm, name, batch, micro_batches, rounds, gantt)
            if comm.rank == 0:  # at once: the next case takes minutes
                console.print(table(name, batch, micro_batches, **figures))
            result[f"{name} {batch} {micro_batches}"] = figures
        leave(result)
        stop_torch()
        comm.close()
        return
    result = on_this_machine(__file__, sys.argv[1:])
    if json_file is not None:
        json_file.write_text(json.dumps({"rounds": rounds, "found": result}), encoding="utf-8")


def measure(
    comm: Any, name: str, batch: int, micro_batches: int, rounds: int, gantt: Path | None
) -> dict[str, Any]:
    """Seconds per step of every peer; bubbles and peaks of every schedule. Nothing but on rank 0."""
    work = network(name, batch)
    with threadpool_limits(1):
        peers_by_name = peers(comm, work, micro_batches)
        check_losses(comm, peers_by_name, work.tolerance)
        times = interleaved(comm, peers_by_name, rounds)
        bubbles, peaks = {}, {}
        for schedule in SCHEDULES:
            picture = None if gantt is None else gantt / f"{name}-{batch}-{schedule}.png"
            bubbles[schedule] = bubbles_of_a_step(comm, schedule, work, micro_batches, picture)
            peaks[schedule] = peaks_of_a_step(comm, schedule, work, micro_batches)
    return {"times": times, "bubbles": bubbles, "peaks": peaks} if times else {}


def bubbles_of_a_step(
    comm: Any, schedule: str, work: Any, micro_batches: int, picture: Path | None
) -> tuple[float, float]:
    """The bubble as planned from the measured times of instructions, and as measured; of a median step."""
    traced = Traced(comm)
    step, _ = stepper(work, pipeline(traced, schedule, work, micro_batches))
    step()
    steps = []
    for _ in range(TRACED_STEPS):
        traced.record.spans.clear()
        comm.barrier_with("for all ranks to begin")
        step()
        steps.append(gather_trace(comm, traced))
    if comm.rank != 0:
        return 0.0, 0.0
    timetable = find_schedule(schedule).of(RANKS, micro_batches)
    pairs = [(as_trace(plan_of(timetable, trace)), trace) for trace in steps]
    pairs.sort(key=lambda pair: bubble_of(pair[1]))
    plan, run = pairs[len(pairs) // 2]
    if picture is not None:
        draw_pair(plan, run, picture)
    return bubble_of(plan), bubble_of(run)


def peaks_of_a_step(comm: Any, schedule: str, work: Any, micro_batches: int) -> list[int]:
    """The most bytes each rank allocated in a step beyond what it held before."""
    step, _ = stepper(work, pipeline(comm, schedule, work, micro_batches))
    step()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    step()
    peak = tracemalloc.get_traced_memory()[1] - before
    tracemalloc.stop()
    return comm.mpi.allgather(peak)


def table(
    name: str,
    batch: int,
    micro_batches: int,
    times: Any,
    bubbles: dict[str, Any],
    peaks: dict[str, list[int]],
) -> Table:
    """Milliseconds, speedups, bubbles and peaks."""
    ideal = micro_batches * RANKS / (micro_batches + RANKS - 1)
    actual = Table(
        title=f"{name}: {NETWORKS[name].title}, batch {batch}, {micro_batches} micro-batches; {RANKS} MPI "
        "processes, one BLAS thread each",
        caption=f"speedup: over serial, of torch's pipelines over torch; {ideal:.2f} for equal stages, if "
        "few rows are multiplied as fast as many. Bubble: idle share of the ranks' time, planned from the "
        "measured times of the instructions, and measured. Peak: of the bytes that a step allocates, on each "
        "rank",
        caption_justify="left",
    )
    for column in ("", "ms", "speedup", "target", "met", "bubble: plan", "run", "peak MB"):
        actual.add_column(column, justify="left" if not column else "right", no_wrap=True)
    speedups = {
        peer: median_ratio(times["torch" if peer.startswith("torch") else "serial"], t)
        for peer, t in times.items()
    }
    best = {
        max(names, key=speedups.__getitem__): TARGETS[micro_batches][kind]
        for kind, names in (("plain", PLAIN), ("batched", BATCHED))
    }
    for peer, t in times.items():
        target = best.get(peer)
        expected = (
            ("", "") if target is None else (f">= {target}", "yes" if speedups[peer] >= target else "no")
        )
        plan, run = bubbles.get(peer, (None, None))
        shares = ("", "") if plan is None else (f"{plan:.0%}", f"{run:.0%}")
        peak = " ".join(f"{n / 1e6:.0f}" for n in peaks.get(peer, ()))
        actual.add_row(peer, f"{median(t) * 1000:.1f}", f"{speedups[peer]:.2f}", *expected, *shares, peak)
    return actual


if __name__ == "__main__":
    typer.run(main)
