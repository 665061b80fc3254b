"""Laws of backends/cli/net_settings.py and generate_command.py: train, prove, test and generate take a net
for text of any size, and what does not fit is refused in one line.
"""

import json
import math
import re
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from backends.cli import generate_command
from backends.cli.training import Training
from minigrad.model_file import ModelFile, read_model
from minigrad.models import find_net
from minigrad.text import course
from tests.bugs.mutant import mutant

SIZES = ["--length", "8", "--width", "8", "--heads", "2", "--blocks", "1"]
SMALL = ["--net", "transformer", *SIZES, "--transport", "threads"]
FEW = [*SMALL, "--text", "few.txt", "--warm-up", "2", "--batch", "7", "--epochs", "2", "--dtype", "float64"]


@pytest.fixture(autouse=True)
def few_paragraphs(tmp_path):
    """180 symbols: 21 rows to train on, the last with padding, and 3 to test on."""
    (tmp_path / "few.txt").write_bytes(course()[:180])
    (tmp_path / "latin").write_bytes(b"caf\xe9 " * 20)
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "short").write_bytes(b"It is too short")


def figures(minigrad, tmp_path, *arguments):
    status, out, errors = minigrad("train", *FEW, *arguments, "--json", "m.json")
    assert status == 0, errors
    return json.loads((tmp_path / "m.json").read_text(encoding="utf-8")), out


def test_ranks_train_as_one(minigrad, tmp_path):
    one, out = figures(minigrad, tmp_path)
    assert len(one["losses"]) == 6 and len(one["test_losses"]) == 2
    assert f"{one['test_loss']:.3f} nats ({one['test_loss'] / math.log(2):.3f} bits) a symbol" in out
    assert f"{one['references']['test loss of a table of pairs']:.3f} nats" in out
    assert one["config"] | {"optimizer": "adamw", "lr": 0.002, "clip": 1.0, "length": 8} == one["config"]
    for ranks in (
        ["--data", "2"],
        ["--model", "2"],
        ["--pipe", "2"],
        ["--data", "2", "--strategy", "sharded"],
    ):
        several, _ = figures(minigrad, tmp_path, *ranks)
        for name in ("losses", "test_losses", "train_loss"):
            assert several[name] == pytest.approx(one[name], rel=1e-12), (ranks, name)


def test_the_warm_up_of_a_net_gives_way_in_a_short_training(minigrad, tmp_path):
    """It takes at most a quarter of all steps; one that --warm-up asks for must fit."""
    for steps, expected in ((1, 0), (3, 0), (4, 1), (79, 19), (80, 20), (10_000, 20)):
        assert Training(net="transformer").warm_up_of(steps) == expected
        assert Training(net="transformer", warm_up=7).warm_up_of(steps) == 7
        assert Training(net="lenet").warm_up_of(steps) == 0
    default = FEW[: FEW.index("--warm-up")] + FEW[FEW.index("--warm-up") + 2 :]
    status, out, errors = minigrad("train", *default, "--lr-schedule", "constant", "--json", "m.json")
    assert status == 0, out + errors
    (log,) = tmp_path.glob("runs/*/metrics.jsonl")
    records = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    assert [record["lr"] for record in records if "lr" in record] == pytest.approx([2e-4] + 5 * [2e-3])
    assert json.loads((tmp_path / "m.json").read_text(encoding="utf-8"))["config"]["warm_up"] == 1
    status, _, err = minigrad("train", *FEW, "--warm-up", "6")
    assert status == 1 and "--warm-up 6 must be less than the 6 steps of the run" in err


def test_a_training_goes_on_from_its_checkpoint(minigrad, tmp_path):
    whole, _ = figures(minigrad, tmp_path)
    figures(minigrad, tmp_path, "--epochs", "1", "--checkpoint", "c", "--lr-schedule", "constant")
    more, _ = figures(minigrad, tmp_path, "--resume", "c", "--data", "2", "--lr-schedule", "constant")
    again, _ = figures(minigrad, tmp_path, "--lr-schedule", "constant")
    for name in ("losses", "test_losses", "train_loss"):
        assert more[name] == pytest.approx(again[name], rel=1e-12) and more[name] != whole[name]
    status, _, err = minigrad("train", *FEW, "--length", "4", "--resume", "c", "--lr-schedule", "constant")
    assert status == 1 and "a training with --length 8, and this is one with --length 4; pass the same" in err
    (tmp_path / "few.txt").rename(tmp_path / "moved")
    figures(minigrad, tmp_path, "--resume", "c", "--lr-schedule", "constant", "--text", "moved")
    (tmp_path / "few.txt").write_bytes(course()[:180].swapcase())  # of as many symbols, with other numbers
    status, _, err = minigrad("train", *FEW, "--resume", "c", "--lr-schedule", "constant")
    assert status == 1 and "on another text, or few.txt has changed since; take that text, or leave" in err


@pytest.mark.parametrize(
    "ranks",
    ["--data 3", "--pipe 2", "--pipe 2 --schedule gpipe", "--pipe 3 --recompute", "--model 2", "--model 3"]
    + ["--data 2 --pipe 2", "--data 2 --strategy sharded", "--data 2 --strategy bucketed"],
)
def test_the_transformer_is_proved(minigrad, ranks):
    status, out, errors = minigrad("prove", *SMALL, "--text", "few.txt", "--batch", "5", *ranks.split())
    assert status == 0 and "PROVED" in out, out + errors


def saved(minigrad, tmp_path):
    metrics, _ = figures(minigrad, tmp_path)
    (file,) = tmp_path.glob("runs/*/model.safetensors")
    return metrics, file


def test_a_saved_model_knows_its_text_its_sizes_and_its_symbols(minigrad, tmp_path):
    metrics, file = saved(minigrad, tmp_path)
    notes = read_model(file).notes
    assert notes | {"length": "8", "width": "8", "heads": "2", "blocks": "1"} == notes
    assert notes["symbols"].encode("latin-1") == bytes(sorted(set(course()[:180])))
    status, out, _ = minigrad("test", str(file))
    loss = metrics["test_loss"]
    assert (status, out) == (
        0,
        f"transformer on text: {loss:.3f} nats ({loss / math.log(2):.3f} bits) a symbol\n",
    )
    (tmp_path / "few.txt").rename(tmp_path / "other.txt")
    assert minigrad("test", str(file), "--text", "other.txt")[1] == out
    assert "few.txt: no such file; pass a file" in minigrad("test", str(file))[2]


def written_by(module: ModuleType, file: Path) -> str:
    with redirect_stdout(StringIO()) as out:
        module.write(file, "a", 30, 1.0, 1)
    return out.getvalue()


def test_a_text_is_written(minigrad, tmp_path):
    _, file = saved(minigrad, tmp_path)
    once, again, other = (
        minigrad("generate", str(file), "--prompt", "a", "--symbols", "30", "--seed", seed) for seed in "112"
    )
    assert once[0] == 0 and once[1] == again[1] != other[1] and re.match("(?s)a.{30}\n$", once[1])
    greedy = [
        minigrad("generate", str(file), "--temperature", "0", "--prompt", "a", "--seed", s)[1] for s in "12"
    ]
    assert greedy[0] == greedy[1] and len(greedy[0]) == 202
    arrays, notes = read_model(file)
    assert not set("The ") <= set(symbols := notes["symbols"])
    assert minigrad("generate", str(file), "--symbols", "1")[1].startswith(symbols[0])
    known = "".join(dict.fromkeys("The " + symbols))[: len(symbols)]
    ModelFile(arrays, notes | {"symbols": known}).write(tmp_path / "known")
    assert minigrad("generate", "known", "--symbols", "1")[1].startswith("The ")
    for old, new in (("rng=seed", "rng=0"), ("(content + bytes", "(bytes")):
        broken = mutant("backends.cli.generate_command", (old, new))
        expected, text = (written_by(module, file) for module in (generate_command, broken))
        assert text != expected


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["generate", "MODEL", "--prompt", ""], "the prompt is empty; give at least one symbol"),
        (["generate", "MODEL", "--prompt", "a~b"], "the prompt has b'~' at place 1, which is none of the"),
        (["generate", "MODEL", "--prompt", "a", "--temperature", "-1"], "must be a number of at least 0, g"),
        (["generate", "none"], "No such file"),
        (["generate", "few.txt"], "few.txt is no whole model file"),
        (["generate", "digits"], "digits holds mlp, which tells images apart and writes no text; tr"),
        (["generate", "bare"], "bare does not say the symbols and the length, width, heads, blocks of it"),
        (["test", "MODEL", "--dataset", "mnist"], "cannot be tested on mnist; choose --dataset text"),
        (["test", "MODEL", "--text", "latin"], "latin is no text in UTF-8: byte 3 is 0xe9; convert it"),
        (["test", "MODEL", "--net", "mlp"], "holds no mlp: the state lacks 1.bias"),
        (["test", "squared"], "squared does not say the symbols and the length, width, heads, blocks"),
        (["test", "wider"], "wider holds no transformer: "),
        (["test", "digits", "--text", "few.txt"], "--text is for nets that learn from text, not for mlp"),
    ],
    ids=lambda x: " ".join(x) if isinstance(x, list) else "",
)  # fmt: skip
def test_what_is_no_model_for_text_is_refused_in_one_line(minigrad, tmp_path, arguments, words):
    _, file = saved(minigrad, tmp_path)
    find_net("mlp").build(np.random.default_rng(0)).save(tmp_path / "digits", net="mlp")
    arrays, notes = read_model(file)
    ModelFile(arrays, {"net": "transformer"}).write(tmp_path / "bare")
    ModelFile(arrays, notes | {"width": "16"}).write(tmp_path / "wider")
    ModelFile(arrays, notes | {"heads": "²"}).write(tmp_path / "squared")
    status, out, err = minigrad(*(str(file) if word == "MODEL" else word for word in arguments))
    assert status == 1 and not out and err.count("\n") == 1 and words in err, err


@pytest.mark.parametrize("command", ["train", "prove"])
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("--net transformer --heads 3", "3 heads do not divide a width of 128; choose one of 1, 2, 4, 8"),
        ("--net lenet --text few.txt", "--text is for nets that learn from text, and lenet takes images"),
        ("--net mlp --length 8", "--length is for nets that learn from text, and mlp takes images"),
        ("--net transformer --text none", "--text none: no such file; pass a file that holds a text"),
        ("--net transformer --text .", "--text .: it is a folder; pass a file that holds a text"),
        ("--net transformer --text empty", "empty has 0 symbols, and rows of 64 need a text of at least 73"),
        ("--net transformer --text short", "short has 15 symbols, and rows of 64 need a text of at least 73"),
        ("--net transformer --text latin", "latin is no text in UTF-8: byte 3 is 0xe9; convert it"),
        ("--net transformer --pipe 9", "transformer has 5 layers; take at most 5 stages"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(minigrad, tmp_path, command, arguments, words):
    status, out, err = minigrad(command, *arguments.split())
    assert status == 1 and not out and err.count("\n") == 1 and words in err, err
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("--dataset text", "lenet takes images of 28 x 28, and text has rows of 64 symbols; choose --n"),
        ("--net transformer --dataset mnist", "mnist has images of 28 x 28; choose --net lenet, or --d"),
        ("--net transformer --optimizer sgd", "one for adamw, and sgd needs another; pass --lr"),
    ],
)
def test_a_training_that_does_not_fit_is_refused_in_one_line(minigrad, tmp_path, arguments, words):
    status, out, err = minigrad("train", *arguments.split())
    assert status == 1 and not out and err.count("\n") == 1 and words in err, err
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("flag", ["--length", "--width", "--heads", "--blocks"])
@pytest.mark.parametrize("value", ["0", "-1", "1000000", "many"])
def test_a_size_out_of_range_is_a_mistake_of_usage(minigrad, flag, value):
    status, _, err = minigrad("train", "--net", "transformer", flag, value)
    assert status == 2 and err.startswith(f"minigrad: Invalid value for '{flag}': ") and err.count("\n") == 1


def test_a_proof_has_a_default_of_its_own(minigrad):
    status, out, _ = minigrad("prove", *SMALL, "--text", "few.txt", "--dtype", "float32")
    assert status == 0 and "transformer, batch 13" in " ".join(out.split())
