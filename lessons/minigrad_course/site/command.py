"""``minigrad site build``: writes the course as web pages."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from backends.cli.curves import check_drawing
from backends.cli.next_command import NextCommand
from backends.cli.run_folder import make_folder
from backends.process.launcher import under_mpiexec
from backends.process.signals import Interrupted
from minigrad.lookup import check_choice

from ..handout.repository import repository


def site(
    action: Annotated[str, typer.Argument(help="what to do: build", metavar="build")],
    folder: Annotated[
        Path, typer.Argument(help="a new folder, or one with an earlier site", metavar="DIR")
    ] = Path("runs/site"),
    records: Annotated[
        Path, typer.Option(help="folder of what the lessons printed and drew", metavar="DIR")
    ] = Path("runs/records"),
) -> None:
    """Write the course as web pages, to be opened as files: no server and no network are needed.

    Each lesson is run once, in a few minutes for all; a later build runs only those whose sources changed.
    """
    check_choice("action", action, {"build": site})
    under_mpiexec()
    check_drawing()
    for written in (folder.parent, records):  # before minutes of lessons
        make_folder(written, "pages and records are written there")
    from .build import build

    try:
        with repository() as root:
            pages = build(folder, records, lambda step: print(step, flush=True), root)
    except Interrupted as error:
        text = f"the lessons that were run are in {records}, and the next build goes on from there"
        raise Interrupted(error.number, text) from None
    print(f"{len(pages)} pages; open\n{folder / 'index.html'}")
    NextCommand("minigrad lesson 01", "the first lesson, here").show(Console())
