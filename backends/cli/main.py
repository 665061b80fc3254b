"""The ``minigrad`` command: train, prove, trace, run, slurm, storm, doctor."""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import replace
from importlib.metadata import entry_points, version
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from minigrad.environment import check_variables
from minigrad.files import replacement
from minigrad.lookup import check_choice

from ..comm.chrome import chrome_trace
from ..comm.mailboxes import Deadlock, WaitTimeout
from ..comm.trace import Traced, gather_trace
from ..launch.hang_report import HangReported, write_stacks
from ..launch.launch import cores, load_mpi, run, run_script, say, size_under_mpiexec
from ..launch.ping_pong import measure_links
from ..launch.signals import Interrupted
from ..launch.stopped import Stopped
from ..launch.supervise import saved_in
from ..registry import declaration, load_strategy
from ..storm.job import STRATEGIES
from ..storm.storm import Storm
from . import checkpoint_view, options, proof, storm_view
from . import doctor as health
from .checkpointing import CheckpointOptions
from .console import new_console, print_paths
from .curves import Curves, check_drawing, draw_curves, drawing_problem
from .link_report import as_values, conclusion, link_table
from .next_command import NextCommand, after_storm, after_training, lesson_of
from .options import MOST_SAMPLES, ParallelOptions
from .parallel import members
from .refusal import in_one_line, is_refusal
from .run_folder import CURVES, FIGURES, LOG, MODEL, RunFolder, check_writable, write_json
from .saved_model import SavedModel
from .slurm_command import batch_script, write
from .strategy_flags import WithOptions
from .trace_view import show, show_trace
from .training import Training, report

app = typer.Typer(
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def print_version(value: bool) -> None:
    if value:
        print(f"minigrad {version('minigrad-course')}")
        raise typer.Exit


@app.callback()
def common(
    _: Annotated[
        bool,
        typer.Option(
            "--version", help="print the version", metavar="", callback=print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Train neural networks in parallel, and prove that this equals serial training."""


@app.command()
@WithOptions
def train(
    ranks: ParallelOptions,
    training: Training,
    checkpoints: CheckpointOptions,
    json: options.Json = None,
    trace: Annotated[
        Path | None,
        typer.Option(help="write a trace, for ui.perfetto.dev and minigrad trace", metavar="FILE"),
    ] = None,
    log: Annotated[
        bool, typer.Option("--log", help="print one line an epoch, and no progress bar", metavar="")
    ] = False,
    *,
    flags: dict[str, Any],
) -> None:
    """Train a network on handwritten digits; results and curves are written to a folder under runs/."""
    config = replace(training, **ranks.configure(flags, training.batch))
    parallel = config.parallel
    config.check_capture(traced=trace is not None)
    config.check_warm_up()
    check_writable(json)
    check_writable(trace, "--trace")
    if trace is not None:  # its picture is what it is for
        check_drawing()
    checked = parallel.check(lambda comm: parallel.backend_on(comm, config.batch or MOST_SAMPLES))
    checkpoints.check(checked, config.config())
    config.check_momentum(checked)
    console = new_console()
    if checked is not None:
        undrawable = drawing_problem()
        notes = [
            *config.notes(),
            *([] if undrawable is None else [f"note: no curves are drawn: {undrawable}"]),
        ]
        print(*notes, sep="\n", end="\n" * bool(notes), flush=True)

    def work(comm) -> None:
        traced = None if trace is None else Traced(comm)
        backend = config.backend(traced or comm)
        files, curves = RunFolder(comm, config.net), Curves()

        def save(metrics: dict[str, Any]) -> None:
            if files.path is not None and drawing_problem() is None:
                curves.redraw(metrics, files.path / CURVES)

        append = files.append if comm.rank == 0 else lambda records: None
        try:
            metrics, model = config.run(traced or comm, backend, console, save, checkpoints, append, log)
        except Stopped:
            raise
        except Interrupted as signal:
            raise Interrupted(signal.number, saved_in(files.path and files.path / LOG)) from None
        except (Deadlock, WaitTimeout) as error:
            if comm.rank == 0 or isinstance(error, WaitTimeout):  # a deadlock ends all ranks at once
                write_stacks(error.stacks, files.find())
            raise
        finally:
            files.close()
        lost = metrics.get("lost")  # the same on all ranks that are left
        gathered = None if traced is None or lost else gather_trace(comm, traced)

        def write_report() -> None:
            if not all(member.writes_report for member in members(backend)):
                return
            metrics["run"] = files.run
            picture = None
            try:
                folder = files.write(metrics)
                if json is not None:
                    write_json(json, metrics)
                picture = folder / CURVES if drawing_problem() is None else None
                if picture is not None:
                    draw_curves(metrics, picture)
                model.save(folder / MODEL, net=config.net, dtype=config.dtype, dataset=config.dataset)
            except OSError:  # as on a full disk: what was measured is at least printed
                console.print(report(metrics, backend))
                raise
            console.print(report(metrics, backend))  # last: stdout may be closed
            print_paths(console, figures=folder / FIGURES, curves=picture, model=folder / MODEL)
            if trace is not None and lost:
                console.print("no trace was written: the ranks that ended took their parts with them")
            if trace is not None and gathered is not None:
                write_json(trace, chrome_trace(gathered, parallel.trace_notes()))
                show_trace(gathered, folder / "timeline.png", console)
                print_paths(console, picture=folder / "timeline.png", trace=trace)

        backend.report(write_report)

    declared = declaration(load_strategy(parallel.strategy))
    survive = declared.survives(parallel.options)
    status = run(
        parallel.ranks,
        config.transport,
        work,
        survive=survive,
        recover=declared.recovers,
        restarts=checkpoints.restarting(),
    )
    if checked is not None and status == 0:
        after_training(ranks, flags, checked, trace).show(console)
    sys.exit(status)


@app.command()
@WithOptions
def prove(
    ranks: ParallelOptions,
    settings: proof.Proof,
    json: options.Json = None,
    svg: Annotated[
        Path | None, typer.Option(help="also draw the table to this SVG file", metavar="FILE")
    ] = None,
    *,
    flags: dict[str, Any],
) -> None:
    """Compare all gradients of one parallel step, on all ranks, with a serial step (status 1: not equal).

    Differences are relative to the largest element of each gradient, and at least a tenth of the model's.
    """
    one_rank = "serial" if ranks.pipe > 1 else "replicated"
    settings = replace(settings, **ranks.configure(flags, settings.batch, one_rank))
    checked = settings.parallel.check(settings.backend)
    check_writable(json)
    check_writable(svg, "--svg")
    failed = []

    def work(comm) -> None:
        verdict = settings.run(comm)
        if verdict is None:
            return
        if json is not None:
            write_json(json, verdict)
        console = new_console(record=svg is not None)
        console.print(proof.report(verdict))
        console.print(proof.conclusion(verdict), soft_wrap=svg is None)
        if svg is not None:
            with replacement(svg) as part:
                console.save_svg(str(part), title="minigrad prove")
        failed.append(not verdict["passed"])

    recover = declaration(load_strategy(settings.parallel.strategy)).recovers
    status = run(settings.parallel.ranks, settings.transport, work, recover=recover)
    if checked is not None and status == 0 and not any(failed):
        lesson_of(checked).show(Console())
    sys.exit(1 if any(failed) else status)


@app.command()
def test(
    file: Annotated[Path, typer.Argument(help="model file that train or Module.save wrote")],
    net: Annotated[
        str | None, typer.Option(help="net of the model (default: as the file says)", metavar="NAME")
    ] = None,
    dataset: Annotated[
        str | None, typer.Option(help="data set (default: the one of the training)", metavar="NAME")
    ] = None,
) -> None:
    """Count how many test images a trained model classifies correctly."""
    model = SavedModel(file, net, dataset)
    print(model.report())
    NextCommand(f"minigrad prove --net {model.net} --data 2", "can two ranks train it as one?").show(
        Console()
    )


@app.command("trace")
def trace_command(
    file: Annotated[Path, typer.Argument(help="file that train --trace wrote", metavar="FILE")],
    step: Annotated[
        int | None,
        typer.Option(help="number of the step, from 0 (default: a step of median length)", metavar="N"),
    ] = None,
    png: Annotated[Path | None, typer.Option(help="also draw it to this PNG file", metavar="FILE")] = None,
    width: Annotated[
        int | None,
        typer.Option(min=20, help="width of the drawing in columns (default: the terminal's)", metavar="N"),
    ] = None,
) -> None:
    """Show one step of a traced run; for a pipeline, next to its planned schedule."""
    if png is not None:
        check_writable(png, "--png")
        check_drawing()
    console = new_console()
    about = show(file, step, png, width or console.width, console)
    lesson, topic = (
        ("13", "the gaps in a schedule") if "pipeline" in about else ("06", "what hides a message")
    )
    NextCommand(f"minigrad lesson {lesson}", topic).show(console)


@app.command("run", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
def run_command(
    script: Annotated[list[str], typer.Argument(help="a Python file and its arguments", metavar="SCRIPT...")],
    ranks: Annotated[int, typer.Option("-n", help="number of processes", metavar="N")] = cores(),
    hosts: Annotated[
        Path | None, typer.Option(help="print the command for the hosts in this file", metavar="FILE")
    ] = None,
    survive: Annotated[
        bool, typer.Option("--survive", help="go on when a rank is killed", metavar="")
    ] = False,
    oversubscribe: Annotated[
        bool,
        typer.Option("--oversubscribe", help="allow more ranks than cores and memory can hold", metavar=""),
    ] = False,
) -> None:
    """Run a Python script on MPI processes, on this machine or in the current Slurm job."""
    status = run_script(ranks, script, hosts, survive, oversubscribe)
    if status == 0 and hosts is None:
        NextCommand(f"minigrad slurm run {shlex.join(script)}", "as a job of a cluster").show(Console())
    sys.exit(status)


@app.command("slurm", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
def slurm_command(
    context: typer.Context,
    command: Annotated[
        list[str], typer.Argument(help="train, prove or run, with its arguments", metavar="COMMAND...")
    ],
    nodes: Annotated[int, typer.Option(help="number of nodes", metavar="N", min=1)] = 1,
    tasks: Annotated[
        int, typer.Option("--tasks-per-node", help="number of ranks on each node", metavar="N", min=1)
    ] = 1,
    cpus: Annotated[
        int, typer.Option("--cpus-per-task", help="number of CPUs of each rank", metavar="N", min=1)
    ] = 1,
    time: Annotated[
        str | None,
        typer.Option(help="time limit as of sbatch, as 2:00:00 (default: the partition's)", metavar="TIME"),
    ] = None,
    notice: Annotated[
        int, typer.Option(help="seconds before the limit at which training is to end", metavar="S", min=1)
    ] = 60,
    sbatch: Annotated[
        list[str] | None,
        typer.Option(help="another option of sbatch, as --partition=long; repeatable", metavar="OPTION"),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="write the script to this file", metavar="FILE")
    ] = None,
) -> None:
    """Print a batch script for Slurm: a command on several nodes, which goes on from its checkpoints."""
    root = context.find_root()
    check_writable(output, "--output")
    settings = {"nodes": nodes, "tasks": tasks, "cpus": cpus, "time": time, "notice": notice}
    write(batch_script(command, root, **settings, extra=sbatch or ()), output)
    following = NextCommand(f"sbatch {shlex.quote(str(output))}", "where Slurm is")
    if output is None:
        again = shlex.join(["minigrad", "slurm", "--output", "job.sh", *sys.argv[2:]])
        following = NextCommand(again, "the same in a file, for sbatch")
    following.show(Console())


@app.command()
def storm(
    seed: Annotated[int, typer.Option(help="seed of the storm, or of the first one", metavar="N", min=0)] = 0,
    seeds: Annotated[
        int | None,
        typer.Option(
            help="number of storms, one for each seed from --seed on", metavar="N", min=1, max=10**6
        ),
    ] = None,
    strategy: Annotated[
        str | None,
        typer.Option(help=f"one of {', '.join(STRATEGIES)} (default: drawn from the seed)", metavar="NAME"),
    ] = None,
    ranks: Annotated[
        int | None,
        typer.Option(
            help="number of ranks (default: 2 or 3, drawn from the seed)", metavar="P", min=1, max=6
        ),
    ] = None,
    only: Annotated[
        str | None,
        typer.Option(
            help="places of those faults of the storm that happen, as in 0,2; or none", metavar="LIST"
        ),
    ] = None,
    png: Annotated[
        Path | None, typer.Option(help="picture (default: runs/storm-SEED.png)", metavar="FILE")
    ] = None,
) -> None:
    """Train on a simulated cluster that fails, and go on from checkpoints (status 1: something was wrong).

    A seed draws a tiny job (strategy, ranks, how often it writes checkpoints) and up to 6 faults: a rank is
    killed, also while it saves or loads; a host pauses; a partition; a slow link; a full disk; a loss of
    power, which takes what was not synced; a flipped bit in a checkpoint. The same seed gives the same storm.
    It is safe if every step after every recovery is the undisturbed run's, bit for bit, and live if the
    training ends soon after the last fault. --seeds runs many, and reduces the first that fails to the fewest
    faults.
    """
    if strategy is not None:
        check_choice("--strategy", strategy, STRATEGIES)
    console = new_console()
    settings = {"--strategy": strategy, "--ranks": ranks}
    more = [word for name, value in settings.items() if value is not None for word in (name, str(value))]
    if seeds is None:
        chosen = Storm.of(seed, strategy, ranks)
        places = storm_view.places_of(only, chosen)
        picture = png or Path("runs") / f"storm-{seed}.png"
        check_writable(png, "--png")
        check_drawing()
        safe = storm_view.show_one(chosen if places is None else chosen.only(places), picture, console)
        after_storm(seed, more, safe=safe).show(console)
        sys.exit(0 if safe else 1)
    if only is not None or png is not None:
        raise ValueError("--only and --png are for one storm; leave --seeds out")
    storms = (Storm.of(seed + number, strategy, ranks) for number in range(seeds))
    failed = storm_view.run_many(storms, seeds, console)
    if failed is not None:
        storm_view.report_failure(failed, more, console)
    else:
        NextCommand("minigrad lesson 16", "what fails, and what is left").show(console)
    sys.exit(0 if failed is None else 1)


@app.command("version", hidden=True)
def version_command() -> None:
    """Print the version, as --version does."""
    print_version(True)


@app.command()
def doctor(
    hosts: Annotated[
        Path | None, typer.Option(help="measure the links between the hosts in this file", metavar="FILE")
    ] = None,
    json: options.Json = None,
) -> None:
    """Check what this machine offers, and how to install what is missing.

    As ranks of mpiexec or srun, or with --hosts, it measures the link of each pair of ranks, too.
    """
    check_writable(json)
    links = None
    if (size_under_mpiexec() or 1) > 1:
        comm = load_mpi()()
        links = measure_links(comm)
        comm.close()
        if comm.rank > 0:
            return
    elif hosts is not None:
        links = health.links_of_hosts(hosts)
    findings = [] if hosts is not None else health.examine()
    console = new_console()
    if findings:
        console.print(health.report(findings, console.width), soft_wrap=True)
    if links is not None:
        console.print(link_table(links))
        console.print(conclusion(links), highlight=False, soft_wrap=True)
    if json is not None:
        values = {"findings": [finding._asdict() for finding in findings]}
        write_json(json, values | ({} if links is None else as_values(links)))
    if any(f.needed and f.remedy for f in findings):
        sys.exit(1)
    if links is not None:
        NextCommand("minigrad lesson 05", "what a message costs on a link").show(console)
    else:
        NextCommand("minigrad train --data 2", "train on two ranks").show(console)


app.add_typer(checkpoint_view.app, name="checkpoint")
for entry in entry_points(group="minigrad.commands"):  # commands of other packages, such as the lessons
    app.command(entry.name)(entry.load())


def command() -> None:
    """Run the command; a mistake of the user ends in one line, not in a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a locale without a character prints ? for it
    try:
        check_variables()
        if status := app(sys.argv[1:] or ["--help"], standalone_mode=False):
            sys.exit(status)  # typer returns the status of an Exit, and 130 for a KeyboardInterrupt
    except BrokenPipeError:  # whoever read the output has seen enough, as head
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # so that the end of Python writes nothing to it
        sys.exit(128 + 13)
    except Exception as error:
        if os.environ.get("MINIGRAD_TRACEBACK"):
            raise
        if isinstance(error, HangReported):  # by the launcher, for all ranks
            sys.exit(1)
        if is_refusal(error):
            say(in_one_line(error))
            sys.exit(1)
        usage = getattr(error, "format_message", None)  # typer's message about a wrong argument
        if usage is None:
            raise
        context = getattr(error, "ctx", None)
        names = ["minigrad", *([context.info_name] if context and context.parent else [])]
        say(f"{usage()} (see {' '.join(names)} --help)")
        sys.exit(2)
