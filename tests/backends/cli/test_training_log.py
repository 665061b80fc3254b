"""Laws of backends/cli/training_log.py, curves.py and minigrad/metrics_log.py: ``metrics.jsonl`` holds
every finished step once, at any moment; the curves are drawn at times.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.cli import curves
from minigrad.metrics_log import MetricsLog, first_and_last, read_metrics
from tests.backends.cli.log_laws import (
    draws_within_its_share,
    ignores_a_torn_last_line,
    makes_its_folder_with_the_first_record,
    reports_each_step_once,
)


@given(st.integers(1, 4), st.integers(1, 5), st.integers(0, 20), st.booleans())
def test_each_step_is_reported_once(tmp_path_factory, epochs, epoch_steps, resumed, tested):
    reports_each_step_once(
        tmp_path_factory.mktemp("log") / "metrics.jsonl",
        epochs=epochs,
        epoch_steps=epoch_steps,
        resumed=min(resumed, epochs * epoch_steps),
        tested=tested,
    )


values = st.none() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
records = st.lists(st.dictionaries(st.text(max_size=3), values, max_size=3), min_size=1, max_size=4)


@given(records, st.floats(0, 1))
def test_a_torn_last_line_is_no_record(tmp_path_factory, records, share):
    ignores_a_torn_last_line(tmp_path_factory.mktemp("log") / "metrics.jsonl", records, share)


def test_any_other_broken_line_is_named(tmp_path):
    file = tmp_path / "metrics.jsonl"
    file.write_text('{"step": 1}\n{"st\n{"step": 3}\n', encoding="utf-8")
    with pytest.raises(ValueError, match=r"metrics.jsonl, line 2: this is no JSON"):
        read_metrics(file)
    file.write_text("[1]\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"line 1: this is no JSON object"):
        first_and_last(file)
    file.write_text('{"torn', encoding="utf-8")
    with pytest.raises(ValueError, match=r"metrics.jsonl holds no record"):
        first_and_last(file)


def test_the_last_record_of_a_long_log(tmp_path):
    log = MetricsLog(tmp_path / "metrics.jsonl")
    log.append({"step": step, "text": 40 * "x"} for step in range(5000))
    log.close()
    first, last = first_and_last(tmp_path / "metrics.jsonl")
    assert (first["step"], last["step"]) == (0, 4999)


def test_a_folder_is_made_with_its_first_record(tmp_path):
    makes_its_folder_with_the_first_record(tmp_path)


@given(
    epochs=st.lists(st.floats(0.1, 1000), max_size=40),
    drawings=st.lists(st.floats(0.1, 30), min_size=40, max_size=40),
)
def test_drawing_takes_a_twentieth_of_the_time(epochs, drawings):
    draws_within_its_share(epochs, drawings)


def test_it_draws_again_and_again():
    assert draws_within_its_share([10.0] * 40, [0.5] * 40) == 39


# The command


TRAIN = ["train", "--net", "sigmoid", "--batch", "250", "--epochs", "2", "--transport", "threads"]


def steps_of(folder):
    """The steps in the only log below ``folder``, with their losses."""
    (file,) = folder.glob("runs/*/metrics.jsonl")
    return [(record["step"], record["loss"]) for record in read_metrics(file) if "loss" in record]


def test_the_log_says_what_the_figures_say(minigrad, tmp_path):
    assert minigrad(*TRAIN, "--data", "2", "--warm-up", "5", "--lr", "0.3")[0] == 0
    (folder,) = (tmp_path / "runs").iterdir()
    figures = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    head, *records = read_metrics(folder / "metrics.jsonl")
    assert head == {**{name: figures[name] for name in ("run", "config", "ranks")}, "checkpoints": None}
    steps = [record for record in records if "loss" in record]
    assert [record["loss"] for record in steps] == figures["losses"] and len(steps) == 40
    assert [record["step"] for record in steps] == list(range(1, 41))
    assert [record["epoch"] for record in steps] == [1 + step // 20 for step in range(40)]
    assert steps[0]["lr"] == pytest.approx(0.03) and steps[5]["lr"] == pytest.approx(0.3, rel=0.05)
    tests = [(r["step"], r["test_accuracy"]) for r in records if "test_accuracy" in r]
    assert tests == list(zip((20, 40), figures["test_accuracies"], strict=True))


KILLS = int(os.environ.get("MINIGRAD_KILLS", "1"))  # moments that are drawn


@pytest.mark.parametrize("kill", range(KILLS))
def test_a_killed_training_leaves_every_step_and_goes_on_with_the_others(minigrad, tmp_path, kill):
    """It is killed as soon as it has a checkpoint and its log a drawn number of lines."""
    lines = random.Random(kill).randrange(30)
    assert minigrad(*TRAIN)[0] == 0
    (folder,) = (tmp_path / "runs").iterdir()
    undisturbed = steps_of(tmp_path)
    folder.rename(tmp_path / "undisturbed")
    command = [sys.executable, "-m", "backends", *TRAIN, "--checkpoint", "kept", "--every", "7"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL)
    try:
        while process.poll() is None and not (
            list(tmp_path.glob("kept/step-*"))
            and sum(file.read_bytes().count(b"\n") for file in tmp_path.glob("runs/*/metrics.jsonl")) > lines
        ):
            time.sleep(0.001)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    killed = steps_of(tmp_path)
    assert len(killed) >= max(7, lines - 5) and killed == undisturbed[: len(killed)]
    (folder,) = (tmp_path / "runs").iterdir()
    folder.rename(tmp_path / "killed")
    assert minigrad(*TRAIN, "--resume", "kept")[0] == 0
    assert steps_of(tmp_path) == undisturbed


FAILURES = {"nan": ["--lr", "1e300", "--dtype", "float32"], "warm-up": ["--warm-up", "40"]}


@pytest.mark.parametrize("failure", FAILURES)
def test_no_folder_is_left_where_nothing_was_measured(minigrad, tmp_path, failure):
    assert minigrad(*TRAIN, *FAILURES[failure])[0] == 1
    for folder in tmp_path.glob("runs/*"):
        assert steps_of(tmp_path), folder


def test_a_file_in_the_place_of_the_folder_is_refused_at_once(minigrad, tmp_path):
    (tmp_path / "runs").touch()
    status, out, err = minigrad(*TRAIN)
    assert status == 1 and "epoch" not in out and err.count("\n") == 1, out
    assert f"cannot write into {tmp_path / 'runs'}; train in a folder" in err


def test_a_full_disk_ends_the_log_and_not_the_training(minigrad, monkeypatch):
    def full(self, records):
        raise OSError("cannot write metrics.jsonl: No space left on device")

    monkeypatch.setattr(MetricsLog, "append", full)
    _, out, err = minigrad(*TRAIN)
    words = " ".join(out.split())
    assert words.count("No space left on device; the training goes on without a log") == 1
    assert "epoch 2 of 2" in out and "cannot write" in err  # nor can the folder of the results be made


def test_curves_are_drawn_while_it_trains(minigrad, tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(curves, "FIRST", 0.0)
    monkeypatch.setattr(curves, "draw_curves", lambda metrics, file: drawn.append(len(metrics["losses"])))
    assert minigrad(*TRAIN)[0] == 0
    assert drawn == [20, 40]
