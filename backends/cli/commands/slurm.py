"""``minigrad slurm``: writes a batch script."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from ..next_command import NextCommand
from ..run_folder import check_writable
from ..slurm_command import batch_script, write

app = typer.Typer(add_completion=False)


@app.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
def slurm(
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
