"""Times model parallelism on two MPI processes against one, and against data parallelism.

Every step sees the whole batch. All peers take turns in the same two processes, in shuffled order, one BLAS
thread each; a speedup is the median over the rounds of one process's time divided by the peer's.

python benchmarks/model_parallel.py                            # the table
python benchmarks/model_parallel.py --only W4 --rounds 30 --json model_parallel.json
python benchmarks/model_parallel.py --gantt pictures           # also draws a step of each split
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer
from data_parallel import (
    RANKS,
    Times,
    check_losses,
    console,
    interleaved,
    leave,
    median_ratio,
    on_this_machine,
)
from data_parallel_peers import Peer, stepper, workload
from rich.table import Table
from threadpoolctl import threadpool_limits

from backends.cli.trace_view import steps_of
from backends.comm.timeline import draw, gantt
from backends.comm.trace import Trace, Traced, gather_trace
from backends.data_parallel import DataParallel
from backends.launch.launch import load_mpi, under_mpiexec
from backends.model_parallel import ModelParallel
from minigrad.serial import Serial
from minigrad.strategy import Strategy

Plan = dict[str, str]
PLANS: dict[str, dict[str, Plan]] = {
    "W2": {
        "column, row": {"0": "column", "2": "row"},
        "gathered": {"0": "gathered", "2": "gathered", "4": "gathered"},
    },
    "W4": {
        "filters, channels": {"0": "filters", "2": "channels", "5": "filters", "7": "channels", "11": "row"},
        "gathered filters": {**{name: "gathered-filters" for name in ("0", "2", "5", "7")}, "11": "gathered"},
        "rows": {**{str(i): "rows" for i in range(11)}, "11": "row"},
    },
}
TARGETS = {("W4", "rows"): 1.6}  # speedups
TRACED = 7  # steps, of which the fastest is drawn


def main(
    only: Annotated[str, typer.Option(help="workloads by name, comma-separated")] = "",
    rounds: Annotated[int, typer.Option(min=1)] = 15,
    json_file: Annotated[Path | None, typer.Option("--json", help="write the figures there")] = None,
    batch: Annotated[int | None, typer.Option(min=1, help="samples, instead of the workload's")] = None,
    pictures: Annotated[Path | None, typer.Option("--gantt", help="draw a step of each split there")] = None,
) -> None:
    """Print time per step, speedup and bytes of every split."""
    names = [name.strip().upper() for name in only.split(",")] if only else list(PLANS)
    if unknown := [name for name in names if name not in PLANS]:
        raise typer.BadParameter(f"unknown workload {unknown[0]}; choose from {', '.join(PLANS)}")
    if under_mpiexec():
        comm = load_mpi()()
        leave({name: measure(comm, name, batch, rounds, pictures) for name in names})
        comm.close()
        return
    figures = on_this_machine(__file__, sys.argv[1:])
    for name in names:
        console.print(table(name, f"{name} {workload(name, batch).title}", **figures[name]))
    if json_file is not None:
        json_file.write_text(
            json.dumps({"rounds": rounds, "batch": batch, "found": figures}), encoding="utf-8"
        )


def measure(
    comm: Any, name: str, batch: int | None, rounds: int, pictures: Path | None = None
) -> dict[str, Any]:
    """Seconds and bytes per step of every peer; first their losses are compared. Nothing but on rank 0.

    A step of each split is drawn into the folder ``pictures``, and printed.
    """
    work = workload(name, batch)
    with threadpool_limits(1):
        peers = {"serial": Peer(stepper(work, Serial())[0], alone=True)}
        nbytes, traces = {}, {}
        for peer in ("data parallel", *PLANS[name]):
            peers[peer] = Peer(stepper(work, strategy(comm, name, peer, work))[0])
            nbytes[peer], traces[peer] = traced_step(comm, name, peer, work)
        check_losses(comm, peers, work.tolerance)
        times = interleaved(comm, peers, rounds)
    if not times:
        return {}
    if pictures is not None:
        for peer, trace in traces.items():
            show(trace, pictures / f"{name} {peer}.png".replace(",", "").replace(" ", "_"), f"{name}, {peer}")
    return {"times": times, "nbytes": nbytes}


def strategy(comm: Any, name: str, peer: str, work: Any) -> Strategy:
    if peer == "data parallel":
        return DataParallel(comm)
    return ModelParallel(comm, PLANS[name][peer], sample=work.input[1:])


def traced_step(comm: Any, name: str, peer: str, work: Any) -> tuple[int, Trace | None]:
    """The bytes this rank hands to messages and all-reduces in a step, and, on rank 0, all ranks' trace."""
    traced = Traced(comm)
    step, _ = stepper(work, strategy(traced, name, peer, work), span=traced.computing)
    before = 0
    for _ in range(TRACED):
        before = traced.record.ledger.sent().bytes
        comm.barrier_with("for all ranks to begin")
        step()
    return traced.record.ledger.sent().bytes - before, gather_trace(comm, traced)


def show(trace: Trace, picture: Path, title: str) -> None:
    """The fastest step of a trace, as a PNG and as text."""
    step = min(steps_of(trace), key=lambda s: s.stop - s.start)
    picture.parent.mkdir(parents=True, exist_ok=True)
    draw(step, picture, title=title)
    console.print(f"{title}\n{gantt(step, 96)}\n", markup=False, highlight=False, soft_wrap=True)


def table(name: str, title: str, times: Times, nbytes: dict[str, int]) -> Table:
    """Milliseconds, speedups over serial, and megabytes."""
    actual = Table(
        title=f"{title}; {RANKS} MPI processes, one BLAS thread each",
        caption="MB: what rank 0 hands to messages and all-reduces in a step; an array that is all-reduced "
        "counts once",
        caption_justify="left",
    )
    for column in ("", "ms", "speedup", "target", "met", "MB"):
        actual.add_column(column, justify="left" if not column else "right", no_wrap=True)
    for peer, t in times.items():
        speedup, target = median_ratio(times["serial"], t), TARGETS.get((name, peer))
        expected = ("", "") if target is None else (f">= {target}", "yes" if speedup >= target else "no")
        sent = f"{nbytes[peer] / 1e6:.2f}" if peer in nbytes else ""
        actual.add_row(peer, f"{median(t) * 1000:.2f}", f"{speedup:.2f}", *expected, sent)
    return actual


if __name__ == "__main__":
    typer.run(main)
