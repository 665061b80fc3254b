"""A trained model in a file: what ``minigrad test`` evaluates, and what ``minigrad generate`` writes with."""

from __future__ import annotations

from ast import literal_eval
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import typer

from minigrad.lookup import check_choice
from minigrad.master_weights import PRECISIONS
from minigrad.mnist import load
from minigrad.model_file import read_model
from minigrad.models import Net, find_net
from minigrad.module import Module
from minigrad.text import text as load_text

from .net_settings import DATASETS, MIXTURE, SIZES, net_of_sizes
from .next_command import NextCommand
from .options import DTYPES
from .precision import Precision


class SavedModel(NamedTuple):
    """A model with the net that it is, its dtype and the ``notes`` of its file; ``symbols`` for text."""

    name: str
    net: Net
    model: Module
    dtype: str
    symbols: bytes
    notes: Mapping[str, str]


def load_model(file: Path, net: str | None = None) -> SavedModel:
    """The model in a file; ``net`` stands for the note in the file, or for one that is not there.

    Raises OSError where the file cannot be read; ValueError where it holds another model, for unknown names,
    and without a net.
    """
    arrays, notes = read_model(file)
    name = net or notes.get("net")
    if name is None:
        raise ValueError(f"{file} does not say which net it holds; name it with --net")
    dtype = notes.get("dtype", DTYPES[0])
    check_choice("dtype", dtype, names=(*DTYPES, *PRECISIONS))
    kind, symbols = find_net(name), notes.get("symbols", "").encode("latin-1", "replace")
    if kind.sizes:
        if not symbols or not all(notes.get(size, "").isdecimal() for size in SIZES):
            raise ValueError(
                f"{file} does not say the symbols and the {', '.join(SIZES)} of its {name}; take a file that "
                "minigrad train wrote"
            )
        sizes = {name: int(notes[name]) for name in SIZES}
        sizes |= {name: literal_eval(notes[name]) for name in MIXTURE if name in notes}
        kind = net_of_sizes(kind, sizes, symbols)
    model = kind.build(np.random.default_rng(0)).to(dtype=dtype)
    try:
        model.load_state_dict(arrays)
    except (KeyError, ValueError) as error:
        raise ValueError(f"{file} holds no {name}: {error.args[0]}") from None
    return SavedModel(name, kind, model, dtype, symbols, notes)


def test(
    file: Annotated[Path, typer.Argument(help="model file that train or Module.save wrote")],
    net: Annotated[str | None, typer.Option(help="net of the model (default: as the file says)")] = None,
    dataset: Annotated[str | None, typer.Option(help="data set (default: the one of the training)")] = None,
    text: Annotated[Path | None, typer.Option(help="text (default: the one of the training)")] = None,
) -> None:
    """Count how many test images a trained model classifies correctly, or measure its loss on a text."""
    if dataset is not None:
        check_choice("--dataset", dataset, names=DATASETS)
    saved = load_model(file, net)
    dataset = dataset or saved.notes.get("dataset", saved.net.datasets[0])
    if dataset not in saved.net.datasets:
        raise ValueError(
            f"{saved.name} cannot be tested on {dataset}; choose --dataset {saved.net.datasets[0]}"
        )
    if dataset == "text":
        where = text or (Path(saved.notes["text"]) if "text" in saved.notes else None)
        data = load_text(saved.net.sizes["length"], where, saved.symbols)
    elif text is not None:
        raise ValueError(f"--text is for nets that learn from text, not for {saved.name}; leave it out")
    else:
        data = load(dataset)
    numbers = Precision(saved.dtype)
    samples = numbers.prepared(saved.net, data.test)
    with numbers.computing():
        result = saved.net.metric.measure(saved.model, samples)
    if saved.net.sizes:
        words = saved.net.metric.show(result)
    else:
        words = f"{round(result * len(samples)):,} of {len(samples):,} test images right ({result:.2%})"
    print(f"{saved.name} on {dataset}: {words}")
    NextCommand(f"minigrad prove --net {saved.name} --data 2", "can two ranks train it as one?").show()
