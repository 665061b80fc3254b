"""``minigrad prove``: compares a parallel step with a serial one."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from minigrad.files import replacement

from ...launch.launch import run
from ...registry import class_of, load_strategy
from .. import options, proof
from ..console import new_console
from ..next_command import lesson_of
from ..options import ParallelOptions
from ..run_folder import check_writable, write_json
from ..strategy_flags import WithOptions

app = typer.Typer(add_completion=False)


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

    recover = class_of(load_strategy(settings.parallel.strategy)).traits.recovers
    status = run(settings.parallel.ranks, settings.transport, work, recover=recover)
    if checked is not None and status == 0 and not any(failed):
        lesson_of(checked).show(Console())
    sys.exit(1 if any(failed) else status)
