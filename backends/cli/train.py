"""``minigrad train``: trains a network on ranks."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from ..comm.chrome import chrome_trace
from ..comm.mailboxes import Deadlock, WaitTimeout
from ..comm.trace import Traced, gather_trace
from ..launch.launch import run
from ..launch.supervise import saved_in
from ..process.hang_report import write_stacks
from ..process.signals import Interrupted
from ..process.stopped import Stopped
from ..registry import class_of, load_strategy
from .checkpointing import CheckpointOptions
from .console import new_console, print_paths
from .curves import Curves, check_drawing, draw_curves, drawing_problem
from .next_command import after_training
from .options import MOST_SAMPLES, ParallelOptions
from .parallel import members
from .run_folder import CURVES, FIGURES, LOG, MODEL, Json, RunFolder, check_outputs, write_json
from .strategy_flags import WithOptions
from .training import Training, report


@WithOptions
def train(
    ranks: ParallelOptions,
    training: Training,
    checkpoints: CheckpointOptions,
    json: Json = None,
    trace: Annotated[
        Path | None, typer.Option(help="write a trace, for ui.perfetto.dev and minigrad trace")
    ] = None,
    log: Annotated[bool, typer.Option("--log", help="print one line an epoch, and no progress bar")] = False,
    *,
    flags: dict[str, Any],
) -> None:
    """Train a network on handwritten digits or text; results and curves go to a folder under runs/."""
    config = replace(training, **ranks.configure(flags, training.batch))
    parallel = config.parallel
    config.check_dataset(config.dataset)
    config.optimizer_settings(config.sized_net)
    config.check_capture(traced=trace is not None)
    config.check_warm_up()
    check_outputs(json=json, trace=trace)
    if trace is not None:  # its picture is what it is for
        check_drawing()
    sample = config.sized_net.sample
    checked = parallel.check(lambda comm: parallel.backend_on(comm, config.batch or MOST_SAMPLES, sample))
    checkpoints.check(checked, config.config())
    config.check_momentum(checked)
    config.numbers.check(members(checked))
    console = new_console()
    if checked is not None:
        undrawable = drawing_problem()
        notes = config.notes() + ([] if undrawable is None else [f"note: no curves are drawn: {undrawable}"])
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
            with config.numbers.computing():
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
            if not all(member.declaration.writes_report(member) for member in members(backend)):
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
                model.save(folder / MODEL, **config.model_notes())
            except OSError:  # as on a full disk: what was measured is at least printed
                console.print(report(metrics, backend))
                raise
            console.print(report(metrics, backend))  # last: stdout may be closed
            print_paths(console, figures=folder / FIGURES, curves=picture, model=folder / MODEL)
            if trace is not None and lost:
                console.print("no trace was written: the ranks that ended took their parts with them")
            if trace is not None and gathered is not None:
                write_json(trace, chrome_trace(gathered, parallel.trace_notes()))
                from .trace_view import show_trace  # it loads what draws

                show_trace(gathered, folder / "timeline.png", console)
                print_paths(console, picture=folder / "timeline.png", trace=trace)

        backend.declaration.report(backend, write_report)

    strategy = class_of(load_strategy(parallel.strategy))
    survive = strategy.declaration.survives(parallel.options)
    status = run(
        parallel.ranks,
        config.transport,
        work,
        survive=survive,
        recover=strategy.traits.recovers,
        restarts=checkpoints.restarting(),
    )
    if checked is not None and status == 0:
        half = {"precision": config.precision} if config.numbers.is_half else {}
        after_training(ranks, flags | half, checked, trace).show(console)
    sys.exit(status)
