"""Laws of backends/cli/saved_model.py: a finished training leaves its whole model in a file, which
``minigrad test`` evaluates.
"""

import json
import re
from contextlib import redirect_stdout
from io import StringIO
from types import ModuleType

import numpy as np
import pytest

from backends.cli import saved_model
from backends.registry import strategy_names
from minigrad.mnist import load
from minigrad.model_file import ModelFile, read_model
from minigrad.models import find_net
from minigrad.tensor import Tensor
from tests.bugs.mutant import mutant

OTHERS = {"serial", "expert-parallel"}  # which need one rank, and a net with experts
GRIDS = [["--data", "3", "--strategy", name] for name in sorted({*strategy_names()} - OTHERS)] + [
    [],
    ["--strategy", "sharded", "--option", "stage=3"],
    ["--pipe", "3"],
    ["--pipe", "2", "--schedule", "pipedream"],
    ["--pipe", "2", "--schedule", "layer-wise"],
    ["--model", "3"],
    ["--data", "2", "--pipe", "2", "--model", "2"],
    ["--data", "2", "--strategy", "sharded", "--option", "stage=3"],
]


@pytest.mark.parametrize("settings", GRIDS, ids=" ".join)
def test_the_file_of_a_training_has_its_accuracy(minigrad, tmp_path, settings):
    common = ["train", "--net", "sigmoid", "--batch", "1000", "--epochs", "1", "--transport", "threads"]
    status, out, errors = minigrad(*common, *settings, "--json", "m.json")
    assert status == 0, errors
    metrics = json.loads((tmp_path / "m.json").read_text(encoding="utf-8"))
    (file,) = tmp_path.glob("runs/*/model.safetensors")
    assert f"model: {file.relative_to(tmp_path)}\n" in out
    assert read_model(file).notes == {"net": "sigmoid", "dtype": "float32", "dataset": "mnist5k"}
    status, out, _ = minigrad("test", str(file))
    right = round(metrics["test_accuracy"] * 1000)
    assert (status, out) == (
        0, f"sigmoid on mnist5k: {right} of 1,000 test images right ({right / 1000:.2%})\n",
    )  # fmt: skip


def evaluates(module: ModuleType, folder) -> None:
    """The share of right answers, counted image by image, of weights that no training made."""
    model, test = find_net("mlp").build(np.random.default_rng(3)).to(dtype="float64"), load("mnist5k").test
    model.save(folder / "m", net="mlp", dtype="float64")
    right = sum(int(model(Tensor(x[None])).data.argmax() == y) for x, y in zip(test.x, test.y, strict=True))
    with redirect_stdout(StringIO()) as out:
        module.test(folder / "m")
    assert out.getvalue() == f"mlp on mnist5k: {right} of 1,000 test images right ({right / 1000:.2%})\n"


def test_right_answers_are_counted(tmp_path):
    evaluates(saved_model, tmp_path)
    on_training_images = "saved.net, data.test", "saved.net, data.train[:1000]"
    for change in (on_training_images, ("model.load_state_dict(arrays)", "pass")):
        with pytest.raises(AssertionError):
            evaluates(mutant("backends.cli.saved_model", change), tmp_path)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["none"], "none: No such file or directory; check the path, and your rights there"),
        (["."], "Is a directory; name a file in it"),
        (["/dev/null"], "/dev/null is no whole model file .*; save the model again"),
        (["text"], "text is no whole model file .*; save the model again"),
        (["bare"], "bare does not say which net it holds; name it with --net"),
        (["bare", "--net", "mlp"], "bare holds no mlp: the state lacks 1.bias, .*different model"),
        (["bare", "--net", "nonet"], "unknown net 'nonet'; choose one of mlp, lenet"),
        (["bare", "--net", "mlp", "--dataset", "cifar"], "unknown --dataset 'cifar'; choose one of"),
    ],
)
def test_what_is_no_model_is_refused_in_one_line(minigrad, tmp_path, arguments, words):
    (tmp_path / "text").write_text("hello", encoding="utf-8")
    ModelFile({"w": np.ones(2)}, {}).write(tmp_path / "bare")
    status, out, errors = minigrad("test", *arguments)
    assert status == 1 and not out and errors.count("\n") == 1
    assert re.search(words, errors), errors
