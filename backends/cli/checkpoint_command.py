"""``minigrad checkpoint show`` and ``verify``: what a folder of checkpoints holds."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from ..checkpoint.checkpoints import MANIFEST, Damaged, Generation, generations, whole_generation
from ..words import counted
from .console import new_console
from .next_command import NextCommand
from .parallel import ranks_of

app = typer.Typer(add_completion=False)
Folder = Annotated[Path, typer.Argument(help="folder that train --checkpoint wrote", metavar="DIR")]


@app.callback()
def checkpoint() -> None:
    """Show the checkpoints of a training, or verify every byte of them."""


@app.command()
def show(folder: Folder) -> None:
    """List the checkpoints, and the arrays of the newest one."""
    console, newest = new_console(), None
    table = Table("checkpoint", "step", "loss", "ranks that wrote it", "MB", title=str(folder))
    for generation in checkpoints_in(folder):
        if isinstance(generation, Damaged):
            console.print(f"damaged: {generation}")
            continue
        newest = newest or generation
        megabytes = sum(file["bytes"] for file in generation.manifest["files"].values()) / 1e6
        row = generation.folder.name, str(generation.step), *of_training(generation), f"{megabytes:.1f}"
        table.add_row(*row)
    if newest is None:
        raise ValueError(f"no checkpoint in {folder} is whole; resume from another folder, or train again")
    console.print(table)
    console.print(arrays_of(newest))
    words = "compare every byte with its checksum"
    NextCommand(f"minigrad checkpoint verify {shlex.quote(str(folder))}", words).show(console)


@app.command()
def verify(folder: Folder) -> None:
    """Read every checkpoint, and compare all checksums (status 1: one is damaged)."""
    damaged = False
    for generation in checkpoints_in(folder):
        damaged |= isinstance(generation, Damaged)
        words = f"damaged: {generation}" if isinstance(generation, Damaged) else f"whole: {generation.folder}"
        print(words)
    if not damaged:
        NextCommand("minigrad lesson 16", "how a checkpoint survives a crash").show()
    sys.exit(int(damaged))


def checkpoints_in(folder: Path) -> list[Generation | Damaged]:
    """The checkpoints in a folder, or the one that it is; raises ValueError where there is none."""
    if (folder / MANIFEST).exists():
        return [whole_generation(folder)]
    all_of_them = list(generations(folder))
    if not all_of_them:
        raise ValueError(f"there is no checkpoint in {folder}; train --checkpoint {folder} writes some")
    return all_of_them


def of_training(generation: Generation) -> tuple[str, str]:
    """The loss of the last step, and the ranks; no loss of a program that wrote its own."""
    facts = generation.facts
    try:
        return f"{facts['history']['losses'][-1]:.4f}", ranks_of(**facts["config"])
    except (IndexError, KeyError, TypeError, ValueError):
        return "", counted(len(generation.manifest["files"]), "rank")


def arrays_of(generation: Generation) -> Table:
    """Name, shape, dtype and file of each array."""
    table = Table("array", "shape", "dtype", "file", title=generation.folder.name)
    rows = (
        (name, str(tuple(array["shape"])), array["dtype"], file)
        for file, described in generation.manifest["files"].items()
        for name, array in described["arrays"].items()
    )
    for row in sorted(rows):
        table.add_row(*row)
    return table
