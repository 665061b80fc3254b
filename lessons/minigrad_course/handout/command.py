"""``minigrad handout``: writes the tree for students."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from backends.cli.next_command import NextCommand

from .handout import write_handout
from .repository import repository


def handout(folder: Annotated[Path, typer.Argument(help="a new or empty folder", metavar="DIR")]) -> None:
    """Write the tree for students: library, lessons and assignments, without their answers."""
    with repository() as root:
        count = write_handout(folder, root)
    print(f"{count} files in {folder}; students run pip install -e . in it")
    NextCommand("minigrad autograder a1 --gradescope a1.zip", "what grades them at Gradescope").show(
        Console()
    )
