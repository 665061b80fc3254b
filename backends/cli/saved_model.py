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


class SavedModel:
    """The model in ``file``, whose notes name its net, its dtype and the data set that trained it.

    ``net`` and ``dataset`` stand for these notes, or for notes that are not there. Raises OSError where the
    file cannot be read; ValueError where it holds another model, for unknown names, and without a net.
    """

    def __init__(self, file: Path, net: str | None = None, dataset: str | None = None):
        arrays, notes = read_model(file)
        self.net, self.dataset = net or notes.get("net"), dataset or notes.get("dataset", DATASETS[0])
        if self.net is None:
            raise ValueError(f"{file} does not say which net it holds; name it with --net")
        self.dtype = notes.get("dtype", DTYPES[0])
        check_choice("--dataset", self.dataset, names=DATASETS)
        check_choice("dtype", self.dtype, names=DTYPES)
        self.model = find_net(self.net).build(np.random.default_rng(0)).to(dtype=self.dtype)
        try:
            self.model.load_state_dict(arrays)
        except KeyError as error:
            raise ValueError(f"{file} holds no {self.net}: {error.args[0]}") from None

    def report(self) -> str:
        """How many images of the test set the model classifies correctly, in one line."""
        test = find_net(self.net or "").prepare(load(self.dataset).test, self.dtype)
        share = accuracy(self.model, test)
        right = round(share * len(test))
        return f"{self.net} on {self.dataset}: {right:,} of {len(test):,} test images right ({share:.2%})"


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
