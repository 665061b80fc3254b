"""``minigrad train --checkpoint``, then ``--resume``: the same losses, figures and model file come out."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from backends.pipeline import schedule_names
from minigrad.model_file import read_model

ALL = bool(os.environ.get("MINIGRAD_RESUME"))  # every layout, on LeNet; else the cheap ones, on a small net
NET = ["--net", "lenet", "--batch", "250"] if ALL else ["--net", "sigmoid", "--batch", "500"]
CHEAP = [
    [],
    ["--data", "2"],
    ["--data", "3", "--strategy", "sharded", "--option", "stage=3"],
    ["--data", "2", "--strategy", "one-node"],
    ["--data", "2", "--strategy", "local-sgd"],
    ["--pipe", "2"],
    ["--data", "3", "--strategy", "server", "--servers", "1", "--staleness", "0"],
    ["--data", "3", "--strategy", "backup-workers"],
    ["--pipe", "2", "--schedule", "pipedream"],
]
LAYOUTS = CHEAP if not ALL else [
    *CHEAP,
    ["--data", "2", "--strategy", "bucketed"],
    ["--data", "2", "--strategy", "naive"],
    ["--data", "2", "--strategy", "sharded", "--option", "stage=1"],
    ["--data", "3", "--strategy", "sharded", "--option", "stage=2"],
    ["--model", "2"],
    ["--data", "2", "--pipe", "2", "--model", "2"],
    ["--data", "2", "--pipe", "2", "--model", "2", "--strategy", "sharded", "--option", "stage=2"],
    ["--pipe", "3", "--schedule", "layer-wise"],
    ["--data", "4", "--strategy", "server", "--servers", "2", "--staleness", "0"],
    ["--pipe", "3", "--schedule", "pipedream"],
    ["--pipe", "2", "--schedule", "pipedream", "--versions", "2bw"],
    *(["--pipe", "2", "--schedule", name] for name in schedule_names()),
]  # fmt: skip


def resumes_with_the_same_bits(
    command: Callable[..., tuple[int, str, str]], folder: Path, layout: list[str], *more: str
) -> None:
    """Assert that training from each checkpoint of a run gives that run's losses and model, bit for bit.

    The resumed ones write checkpoints after the same steps, as some strategies drain messages for each.
    ``command`` runs minigrad in ``folder``: (exit status, output, errors).
    """
    train = ["train", *NET, "--epochs", "2", *layout, *more]
    every = 15 if ALL else 7
    status, _, errors = command(*train, "--checkpoint", "kept", "--every", str(every), "--json", "whole.json")
    assert status == 0, errors
    whole, weights = results(folder, "whole.json")
    end = len(whole["losses"])
    steps = sorted({*range(0, end + 1, every), end})  # also after the last one
    generations = sorted((folder / "kept").iterdir())
    assert [generation.name for generation in generations] == [f"step-{step:08}" for step in steps[-2:]]
    for newest in reversed(generations):
        shutil.rmtree(folder / "runs")
        again = ["--checkpoint", "again", "--every", str(every)]
        status, out, errors = command(*train, "--resume", "kept", *again, "--json", "resumed.json")
        assert status == 0, errors
        assert f"resumed from kept/{newest.name}, at step {int(newest.name[5:])}" in out, out
        resumed, others = results(folder, "resumed.json")
        for name in ("losses", "test_accuracies", "test_accuracy", "train_accuracy"):
            assert resumed[name] == whole[name], name
        assert others == weights
        shutil.rmtree(newest)
        shutil.rmtree(folder / "again")


def results(folder: Path, figures: str | None = None) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The figures of the only training in ``folder`` that has come to its end, and its model's arrays."""
    ((of_run, arrays),) = all_results(folder)
    return of_run if figures is None else json.loads((folder / figures).read_text(encoding="utf-8")), arrays


def all_results(folder: Path) -> list[tuple[dict[str, Any], dict[str, bytes]]]:
    """Figures and arrays of each training in ``folder`` that has come to its end."""
    return [
        (
            json.loads((model.parent / "metrics.json").read_text(encoding="utf-8")),
            {name: array.tobytes() for name, array in read_model(model).arrays.items()},
        )
        for model in folder.glob("runs/*/model.safetensors")
    ]
