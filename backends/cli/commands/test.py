"""``minigrad test``: evaluates the file of a trained model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from ..next_command import NextCommand
from ..saved_model import SavedModel

app = typer.Typer(add_completion=False)


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
