"""The ``minigrad`` command: train, prove, run, doctor."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from minigrad.nets import NETS
from minigrad.optim import OPTIMIZERS, find_optimizer
from minigrad.schedules import SCHEDULES, find_schedule

from . import doctor as health
from . import proof, training
from .arguments import batch_size, check_common, check_device, check_positive, choice, plan_for
from .comm.chrome import chrome_trace
from .comm.trace import Traced, gather_trace
from .launch import choose_transport, cores, rank_under_mpiexec, run, run_script, world_size
from .strategies import read_options, strategy_names
from .tracing import show_trace

DATASETS = ("mnist5k", "mnist")
DTYPES = ("float32", "float64")
STRATEGIES = f"how the ranks share the work, one of {', '.join(strategy_names())}"

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Train, and prove that parallel training equals serial training.",
)
Data = Annotated[int | None, typer.Option(help="ranks that share each batch", metavar="N")]
Model = Annotated[int, typer.Option(help="ranks that share each copy of the model", metavar="M")]
Plan = Annotated[
    Path | None,
    typer.Option(help="which layer is split how, JSON or TOML (default: what moves least)", metavar="FILE"),
]
Transport = Annotated[str | None, typer.Option(help="threads or mpi (default: mpi where installed)")]
NetName = Annotated[str, typer.Option(help=f"one of {', '.join(NETS)}")]
Options = Annotated[
    list[str] | None, typer.Option("--option", metavar="NAME=VALUE", help="of the strategy; can be repeated")
]
Json = Annotated[Path | None, typer.Option(help="also write the figures to this file")]
Seed = Annotated[int, typer.Option(help="of the weights and of the order of the samples")]


@app.command()
def train(
    dataset: Annotated[str, typer.Option(help=f"one of {', '.join(DATASETS)}")] = "mnist5k",
    net: NetName = "lenet",
    data: Data = None,
    model: Model = 1,
    plan: Plan = None,
    strategy: Annotated[
        str | None, typer.Option(help=f"{STRATEGIES} (default: serial, for several ranks replicated)")
    ] = None,
    option: Options = None,
    transport: Transport = None,
    device: Annotated[str, typer.Option(help="numpy or cupy")] = os.environ.get("MINIGRAD_DEVICE", "numpy"),
    dtype: Annotated[str, typer.Option(help="float32 or float64")] = "float32",
    epochs: Annotated[int, typer.Option(min=1)] = 8,
    batch: Annotated[str, typer.Option(help="samples per step over all ranks, or all")] = "64",
    optimizer: Annotated[str, typer.Option(help=f"one of {', '.join(OPTIMIZERS)}")] = "sgd",
    lr: Annotated[
        float | None, typer.Option(help="learning rate (default: the optimizer's own, or the net's)")
    ] = None,
    schedule: Annotated[
        str | None,
        typer.Option(help=f"of the learning rate: {', '.join(SCHEDULES)} (default: the net's own)"),
    ] = None,
    warm_up: Annotated[
        int, typer.Option(min=0, help="steps in which the rate rises from a tenth of it", metavar="STEPS")
    ] = 0,
    clip: Annotated[
        float | None, typer.Option(help="scale gradients down to this joint norm", metavar="NORM")
    ] = None,
    seed: Seed = 0,
    json: Json = None,
    trace: Annotated[Path | None, typer.Option(help="who did what when, for ui.perfetto.dev")] = None,
) -> None:
    """Train a network on handwritten digits; figures and curves are kept under runs/."""
    choice("--dataset", dataset, DATASETS)
    choice("--dtype", dtype, DTYPES)
    ranks = world_size(data, model)
    strategy = strategy or ("serial" if ranks == model else "replicated")
    options = read_options(option or [])
    check_common(net, strategy, options, seed)
    check_device(device)
    check_positive("--lr", lr)
    check_positive("--clip", clip)
    find_optimizer(optimizer)
    if schedule is not None:
        find_schedule(schedule)
    config = training.Training(
        dataset=dataset,
        net=net,
        strategy=strategy,
        options=options,
        data=ranks // model,
        model=model,
        plan=plan_for(plan, net),
        transport=choose_transport(transport, ranks),
        device=device,
        dtype=dtype,
        epochs=epochs,
        batch=batch_size(batch),
        optimizer=optimizer,
        lr=lr,
        schedule=schedule,
        warm_up=warm_up,
        clip=clip,
        seed=seed,
    )
    if json is not None:
        training.check_writable(json)
    if trace is not None:
        training.check_writable(trace, "--trace")
    console = Console()

    def work(comm) -> None:
        traced = None if trace is None else Traced(comm)
        backend = config.backend(traced or comm)
        folder = training.new_run_folder(net) if comm.rank == 0 else None
        metrics = config.run(traced or comm, backend, console)
        found = None if traced is None else gather_trace(comm, traced)
        if folder is None:
            return
        training.write_json(folder / "metrics.json", metrics)
        if json is not None:
            training.write_json(json, metrics)
        console.print(training.report(metrics))
        training.draw_curves(metrics, folder / "curves.png")
        console.print(f"figures in {folder / 'metrics.json'}, curves in {folder / 'curves.png'}")
        if trace is not None and found is not None:
            training.write_json(trace, chrome_trace(found))
            show_trace(found, folder / "timeline.png", console)
            console.print(f"trace in {trace}, for ui.perfetto.dev; picture in {folder / 'timeline.png'}")

    sys.exit(run(ranks, config.transport, work, sys.argv[1:]))


@app.command()
def prove(
    net: NetName = "lenet",
    data: Data = None,
    model: Model = 1,
    plan: Plan = None,
    strategy: Annotated[str, typer.Option(help=STRATEGIES)] = "replicated",
    option: Options = None,
    transport: Transport = None,
    dtype: Annotated[str, typer.Option(help="float64 or float32")] = "float64",
    batch: Annotated[int, typer.Option(help="samples in the step, over all ranks")] = 13,
    seed: Seed = 0,
    json: Json = None,
) -> None:
    """Take one step serially, one in parallel; compare all gradients on all ranks (status 1: unequal)."""
    choice("--dtype", dtype, DTYPES)
    ranks = world_size(data, model)
    options = read_options(option or [])
    check_common(net, strategy, options, seed)
    settings = proof.Proof(
        net=net,
        strategy=strategy,
        options=options,
        data=ranks // model,
        model=model,
        plan=plan_for(plan, net),
        transport=choose_transport(transport, ranks),
        dtype=dtype,
        batch=batch,
        seed=seed,
    )
    if json is not None:
        training.check_writable(json)
    failed = []

    def work(comm) -> None:
        verdict = settings.run(comm)
        if verdict is None:
            return
        if json is not None:
            training.write_json(json, verdict)
        Console().print(proof.report(verdict))
        failed.append(not verdict["passed"])

    status = run(ranks, settings.transport, work, sys.argv[1:])
    sys.exit(1 if any(failed) else status)


@app.command("run", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
def run_command(
    script: Annotated[list[str], typer.Argument(help="a Python file, and what it is given")],
    ranks: Annotated[int, typer.Option("-n", help="how many processes")] = cores(),
    hosts: Annotated[Path | None, typer.Option(help="print the line for the hosts in this file")] = None,
) -> None:
    """Run a script on MPI processes; under Slurm through srun."""
    sys.exit(run_script(ranks, script, hosts))


@app.command()
def doctor() -> None:
    """Look at what this machine offers, and say how to mend what is missing."""
    findings = health.examine()
    Console().print(health.report(findings))
    sys.exit(1 if any(f.needed and f.remedy for f in findings) else 0)


EXPECTED = (ValueError, TypeError, RuntimeError, OSError, FloatingPointError)


def main() -> None:
    """The entry point: a mistake of the user's ends in one line, not in a traceback."""
    try:
        app(sys.argv[1:] or ["--help"], standalone_mode=False)
    except Exception as error:
        if os.environ.get("MINIGRAD_TRACEBACK"):
            raise
        if isinstance(error, EXPECTED):
            say(str(error))
            sys.exit(1)
        usage = getattr(error, "format_message", None)  # what typer finds wrong with the arguments
        if usage is None:
            raise
        say(f"{usage()} (see minigrad --help)")
        sys.exit(2)


def say(message: str) -> None:
    """Print one line of error; of several ranks that fail alike only rank 0 does."""
    rank = rank_under_mpiexec()
    if not rank:
        print(f"minigrad: {message}", file=sys.stderr, flush=True)
    elif "mpi4py.MPI" in sys.modules:  # before that all ranks fail alike
        time.sleep(1)  # where rank 0 fails too, its abort comes first
        print(f"minigrad, rank {rank}: {message}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
