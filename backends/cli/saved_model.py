"""A trained model in a file: what ``minigrad test`` evaluates."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console

from minigrad.lookup import check_choice
from minigrad.mnist import load
from minigrad.model_file import read_model
from minigrad.models import find_net
from minigrad.train import accuracy

from .next_command import NextCommand
from .options import DTYPES
from .training import DATASETS


def evaluated(file: Path, net: str | None = None, dataset: str | None = None) -> tuple[str, str]:
    """The net in a model file, and in one line how many images of the test set it classifies correctly.

    ``net`` and ``dataset`` stand for the notes in the file, or for notes that are not there. Raises OSError
    where the file cannot be read; ValueError where it holds another model, for unknown names, and without a
    net.
    """
    arrays, notes = read_model(file)
    name, dataset = net or notes.get("net"), dataset or notes.get("dataset", DATASETS[0])
    if name is None:
        raise ValueError(f"{file} does not say which net it holds; name it with --net")
    dtype = notes.get("dtype", DTYPES[0])
    check_choice("--dataset", dataset, names=DATASETS)
    check_choice("dtype", dtype, names=DTYPES)
    model = find_net(name).build(np.random.default_rng(0)).to(dtype=dtype)
    try:
        model.load_state_dict(arrays)
    except KeyError as error:
        raise ValueError(f"{file} holds no {name}: {error.args[0]}") from None
    test = find_net(name).prepare(load(dataset).test, dtype)
    share = accuracy(model, test)
    right = round(share * len(test))
    return name, f"{name} on {dataset}: {right:,} of {len(test):,} test images right ({share:.2%})"


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
    name, line = evaluated(file, net, dataset)
    print(line)
    NextCommand(f"minigrad prove --net {name} --data 2", "can two ranks train it as one?").show(Console())
