"""``minigrad generate``: a text that a trained model writes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from minigrad.generate import generate
from minigrad.text import numbers_of

from .next_command import NextCommand
from .precision import Precision
from .saved_model import load_model


def write(
    file: Annotated[Path, typer.Argument(help="model file that train wrote")],
    prompt: Annotated[
        str | None, typer.Option(help="how the text begins (default: The, where known)", metavar="TEXT")
    ] = None,
    symbols: Annotated[int, typer.Option(help="symbols to write", min=1)] = 200,
    temperature: Annotated[
        float, typer.Option(help="0: always the likeliest symbol; 1: as the model learned")
    ] = 0.8,
    seed: Annotated[int, typer.Option(help="random seed of what is drawn", min=0)] = 0,
) -> None:
    """Write a text as a trained transformer would go on from a prompt."""
    saved = load_model(file)
    if not saved.net.sizes:
        raise ValueError(
            f"{file} holds {saved.name}, which tells images apart and writes no text; train --net transformer"
        )
    content = b"The " if set(b"The ") <= {*saved.symbols} else saved.symbols[:1]
    content = content if prompt is None else prompt.encode("utf-8", "surrogateescape")
    with Precision(saved.dtype).computing():
        more = generate(
            saved.model,
            numbers_of(content, saved.symbols, "the prompt"),
            symbols,
            length=saved.net.sizes["length"],
            temperature=temperature,
            rng=seed,
        )
    print((content + bytes(saved.symbols[number] for number in more)).decode("utf-8", "replace"))
    NextCommand("minigrad lesson 17", "how a symbol looks at those before it").show()
