"""``minigrad trace``: shows one step of a traced training."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..console import new_console
from ..curves import check_drawing
from ..next_command import NextCommand
from ..run_folder import check_writable
from ..trace_view import show

app = typer.Typer(add_completion=False)


@app.command()
def trace(
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
