"""The ``minigrad`` command: train, prove, trace, run, doctor."""

from __future__ import annotations

import os
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from minigrad.environment import check_variables
from minigrad.lr_schedules import find_schedule
from minigrad.optim import find_optimizer

from ..comm.chrome import chrome_trace
from ..comm.trace import Traced, gather_trace
from ..launch.capacity import cores
from ..launch.interrupts import Interrupted
from ..launch.launch import check_room, choose_transport, run, run_script, say, world_size
from ..registry import declaration, load_strategy
from . import doctor as health
from . import options, proof, training
from .arguments import (
    MOST_SAMPLES,
    PipelineFlags,
    batch_size,
    check_choice,
    check_device,
    check_positive,
    parallel_config,
)
from .figures import check_writable, write_json
from .parallel import members
from .refusal import in_one_line, is_refusal
from .run_folder import RunFolder
from .strategy_flags import WithStrategyFlags
from .trace_view import show, show_trace

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Train neural networks in parallel, and prove that this equals serial training.",
)


@app.command()
@WithStrategyFlags
def train(
    dataset: options.DatasetName = "mnist5k",
    net: options.NetName = "lenet",
    data: options.Data = None,
    pipe: options.Pipe = 1,
    model: options.Model = 1,
    plan: options.PlanFile = None,
    schedule: options.Order = None,
    micro: options.Micro = None,
    chunks: options.Chunks = None,
    bounds: options.Bounds = None,
    recompute: options.Recompute = False,
    strategy: options.Strategy = None,
    option: options.Options = None,
    transport: options.Transport = None,
    oversubscribe: options.Oversubscribe = False,
    device: options.Device = "numpy",
    dtype: options.Dtype = "float32",
    epochs: options.Epochs = 8,
    batch: options.BatchSize = "64",
    optimizer: options.Optimizer = "sgd",
    lr: options.Rate = None,
    lr_schedule: options.RateSchedule = None,
    warm_up: options.WarmUp = 0,
    clip: options.Clip = None,
    seed: options.Seed = 0,
    json: options.Json = None,
    trace: options.TraceFile = None,
    *,
    flags: dict[str, Any],
) -> None:
    """Train a network on handwritten digits; results and curves are written to a folder under runs/."""
    check_choice("--dataset", dataset, options.DATASETS)
    check_choice("--dtype", dtype, options.DTYPES)
    ranks = world_size(data, model, pipe)
    data = ranks // (pipe * model)
    transport = choose_transport(transport, ranks)
    check_room(ranks, transport, oversubscribe)
    strategy = strategy or ("serial" if data == 1 else "replicated")
    pipeline = PipelineFlags(schedule, micro, chunks, bounds, recompute)
    parallel = parallel_config(
        net,
        strategy,
        option,
        data=data,
        pipe=pipe,
        model=model,
        plan=plan,
        pipeline=pipeline,
        flags=flags,
        samples=batch_size(batch),
    )
    check_device(device)
    check_positive("--lr", lr)
    check_positive("--clip", clip)
    find_optimizer(optimizer)
    if lr_schedule is not None:
        find_schedule(lr_schedule)
    config = training.Training(
        parallel,
        dataset=dataset,
        net=net,
        transport=transport,
        device=device,
        dtype=dtype,
        epochs=epochs,
        batch=batch_size(batch),
        optimizer=optimizer,
        lr=lr,
        lr_schedule=lr_schedule,
        warm_up=warm_up,
        clip=clip,
        seed=seed,
    )
    if json is not None:
        check_writable(json)
    if trace is not None:
        check_writable(trace, "--trace")
    training.check_drawing()
    parallel.check(lambda comm: parallel.backend_on(comm, config.batch or MOST_SAMPLES))
    console = Console()

    def work(comm) -> None:
        traced = None if trace is None else Traced(comm)
        backend = config.backend(traced or comm)
        files = RunFolder(comm, net)
        keep = files.write_now_and_then if comm.rank == 0 else lambda metrics: None
        try:
            metrics = config.run(traced or comm, backend, console, keep)
        except Interrupted as signal:
            raise Interrupted(signal.number, files.kept) from None
        lost = metrics.get("lost")  # all ranks that are left know the same of them
        gathered = None if traced is None or lost else gather_trace(comm, traced)
        if not all(member.writes_report for member in members(backend)):
            return
        metrics["run"] = files.run
        folder = files.write(metrics)
        if json is not None:
            write_json(json, metrics)
        training.draw_curves(metrics, folder / "curves.png")
        console.print(training.report(metrics, backend))  # last: nobody may be there to read it
        console.print(f"figures in {folder / 'metrics.json'}, curves in {folder / 'curves.png'}")
        if trace is not None and lost:
            console.print("no trace was written: the ranks that ended took their parts with them")
        if trace is not None and gathered is not None:
            write_json(trace, chrome_trace(gathered, parallel.trace_notes()))
            show_trace(gathered, folder / "timeline.png", console)
            console.print(
                f"trace in {trace}, for ui.perfetto.dev and minigrad trace {trace}; "
                f"picture in {folder / 'timeline.png'}"
            )

    survive = declaration(load_strategy(parallel.strategy)).survives(parallel.options)
    sys.exit(run(ranks, config.transport, work, sys.argv[1:], survive=survive))


@app.command()
@WithStrategyFlags
def prove(
    net: options.NetName = "lenet",
    data: options.Data = None,
    pipe: options.Pipe = 1,
    model: options.Model = 1,
    plan: options.PlanFile = None,
    schedule: options.Order = None,
    micro: options.Micro = None,
    chunks: options.Chunks = None,
    bounds: options.Bounds = None,
    recompute: options.Recompute = False,
    strategy: Annotated[str | None, typer.Option(help=f"{options.STRATEGIES} (default: replicated)")] = None,
    option: options.Options = None,
    transport: options.Transport = None,
    oversubscribe: options.Oversubscribe = False,
    dtype: options.Dtype = "float64",
    batch: Annotated[int, typer.Option(min=1, help="number of samples in the step, over all ranks")] = 13,
    seed: options.Seed = 0,
    json: options.Json = None,
    svg: Annotated[Path | None, typer.Option(help="also draw the table to this SVG file")] = None,
    *,
    flags: dict[str, Any],
) -> None:
    """Compare all gradients of one parallel step, on all ranks, with a serial step (status 1: not equal)."""
    check_choice("--dtype", dtype, options.DTYPES)
    ranks = world_size(data, model, pipe)
    data = ranks // (pipe * model)
    transport = choose_transport(transport, ranks)
    check_room(ranks, transport, oversubscribe)
    strategy = strategy or ("serial" if data == 1 < pipe else "replicated")
    pipeline = PipelineFlags(schedule, micro, chunks, bounds, recompute)
    parallel = parallel_config(
        net,
        strategy,
        option,
        data=data,
        pipe=pipe,
        model=model,
        plan=plan,
        pipeline=pipeline,
        flags=flags,
        samples=batch,
    )
    settings = proof.Proof(
        parallel,
        net=net,
        transport=transport,
        dtype=dtype,
        batch=batch,
        seed=seed,
    )
    parallel.check(settings.backend)
    for flag, file in (("--json", json), ("--svg", svg)):
        if file is not None:
            check_writable(file, flag)
    failed = []

    def work(comm) -> None:
        verdict = settings.run(comm)
        if verdict is None:
            return
        if json is not None:
            write_json(json, verdict)
        proof.show(verdict, svg)
        failed.append(not verdict["passed"])

    status = run(ranks, settings.transport, work, sys.argv[1:])
    sys.exit(1 if any(failed) else status)


@app.command("trace")
def trace_command(
    file: Annotated[Path, typer.Argument(help="file that train --trace wrote")],
    step: Annotated[
        int | None, typer.Option(help="number of the step, from 0 (default: a step of median length)")
    ] = None,
    png: Annotated[Path | None, typer.Option(help="also draw it to this PNG file")] = None,
    width: Annotated[
        int | None, typer.Option(min=20, help="width of the drawing in columns (default: the terminal's)")
    ] = None,
) -> None:
    """Show one step of a traced run; for a pipeline, next to its planned schedule."""
    if png is not None:
        check_writable(png, "--png")
        training.check_drawing()
    console = Console()
    show(file, step, png, width or console.width, console)


@app.command("run", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
def run_command(
    script: Annotated[list[str], typer.Argument(help="a Python file and its arguments")],
    ranks: Annotated[int, typer.Option("-n", help="number of processes")] = cores(),
    hosts: Annotated[
        Path | None,
        typer.Option(help="print the command for the hosts in this file"),
    ] = None,
    survive: Annotated[bool, typer.Option("--survive", help="go on when a rank is killed")] = False,
    oversubscribe: options.Oversubscribe = False,
) -> None:
    """Run a Python script on MPI processes, on this machine or in the current Slurm job."""
    sys.exit(run_script(ranks, script, hosts, survive, oversubscribe))


@app.command()
def doctor() -> None:
    """Check what this machine offers, and how to install what is missing."""
    findings = health.examine()
    Console().print(health.report(findings))
    sys.exit(1 if any(f.needed and f.remedy for f in findings) else 0)


for entry in entry_points(group="minigrad.commands"):  # commands of other packages, as the lessons'
    app.command(entry.name)(entry.load())


def command() -> None:
    """Run what the arguments name: a mistake of the user's ends in one line, not in a traceback."""
    try:
        check_variables()
        if status := app(sys.argv[1:] or ["--help"], standalone_mode=False):
            sys.exit(status)  # typer returns the status of an Exit, and 130 for a KeyboardInterrupt
    except Exception as error:
        if os.environ.get("MINIGRAD_TRACEBACK"):
            raise
        if is_refusal(error):
            say(in_one_line(error))
            sys.exit(1)
        usage = getattr(error, "format_message", None)  # what typer finds wrong with the arguments
        if usage is None:
            raise
        say(f"{usage()} (see minigrad --help)")
        sys.exit(2)
