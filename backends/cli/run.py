"""``minigrad run``: runs a Python script on ranks."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from ..launch.launch import cores, run_script
from .next_command import NextCommand

app = typer.Typer(add_completion=False)


@app.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
def run(
    script: Annotated[list[str], typer.Argument(help="a Python file and its arguments", metavar="SCRIPT...")],
    ranks: Annotated[int, typer.Option("-n", help="number of processes")] = cores(),
    hosts: Annotated[Path | None, typer.Option(help="print the command for the hosts in this file")] = None,
    survive: Annotated[bool, typer.Option("--survive", help="go on when a rank is killed")] = False,
    oversubscribe: Annotated[
        bool, typer.Option("--oversubscribe", help="allow more ranks than cores and memory can hold")
    ] = False,
) -> None:
    """Run a Python script on MPI processes, on this machine or in the current Slurm job."""
    status = run_script(ranks, script, hosts, survive, oversubscribe)
    if status == 0 and hosts is None:
        NextCommand(f"minigrad slurm run {shlex.join(script)}", "as a job of a cluster").show()
    sys.exit(status)
