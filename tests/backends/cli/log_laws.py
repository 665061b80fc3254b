"""Laws of backends/cli/training_log.py, curves.py and minigrad/metrics_log.py: what the log of a training
promises, for any number of steps, epochs and resumed steps.
"""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import pytest

from backends.cli import curves
from backends.cli.curves import Curves
from backends.cli.run_folder import LOG, RunFolder
from backends.cli.training_log import TrainingLog
from backends.comm import run_ranks
from minigrad.metrics_log import MetricsLog, first_and_last, read_metrics
from minigrad.train import History

HEADER = {"config": {"net": "mlp"}, "ranks": 1, "checkpoints": None}


def loss_of(step: int) -> float:
    return 1 / (3 * step)


def rate(step: int) -> float:
    return 0.1 / (step + 1)


def reports_each_step_once(file: Path, *, epochs: int, epoch_steps: int, resumed: int, tested: bool) -> None:
    """At every moment a reader sees each finished step and test once, in order, as the oracle lists them.

    ``resumed`` steps were taken by another process. With ``tested`` the model was tested after every epoch,
    else only at the end. The step at which an epoch ends may be resumed before its test.
    """
    steps = epochs * epoch_steps
    test_steps = epoch_steps if tested else steps
    log = MetricsLog(file)
    records = TrainingLog(
        log.append, HEADER, rate=rate, epoch_steps=epoch_steps, test_steps=test_steps, say=print
    )
    before = [0.5 + test for test in range(max(resumed - 1, 0) // test_steps)]
    history, accuracies = History([loss_of(step) for step in range(1, resumed + 1)]), list(before)

    def check() -> None:
        expected, tests = [HEADER], iter(accuracies)
        for step in range(1, len(history.losses) + 1):
            where = {"step": step, "epoch": (step - 1) // epoch_steps + 1}
            at = {"seconds": 0.25 * (step - resumed) if step >= known else None}
            expected.append({**where, "loss": loss_of(step), "lr": rate(step - 1), **at})
            if step % test_steps == 0 and (right := next(tests, None)) is not None:
                expected.append({**where, "test_accuracy": right, **at})
        records = read_metrics(file)
        assert records == expected, f"{records} instead of {expected}"
        first, last = first_and_last(file)
        assert first == HEADER and last["step"] == len(history.losses)

    at_a_test = resumed > 0 and resumed % test_steps == 0 and len(before) < resumed // test_steps
    known = resumed if at_a_test else resumed + 1  # the first step whose seconds are known
    for step in range(resumed, steps + 1):
        if step > resumed:
            history.losses.append(loss_of(step))
            history.seconds += 0.25
            records.update(history, accuracies)
            check()
        if step and step % test_steps == 0 and len(accuracies) < step // test_steps:
            accuracies.append(0.5 + len(accuracies))
            records.update(history, accuracies)
            check()
    log.close()


def ignores_a_torn_last_line(file: Path, records: list[dict], share: float) -> None:
    """All records whose line is whole are read from a log that was cut after ``share`` of its bytes."""
    log = MetricsLog(file)
    log.append(records)
    log.close()
    whole = file.read_bytes()
    cut = round(share * len(whole))
    file.write_bytes(whole[:cut])
    lines = whole[:cut].count(b"\n")
    assert read_metrics(file) == records[:lines], f"cut at byte {cut} of {len(whole)}"
    if lines:
        assert first_and_last(file) == (records[0], records[lines - 1]), f"cut at byte {cut} of {len(whole)}"


class FullFile:
    """A file on a full disk."""

    def write(self, lines: bytes) -> int:
        return len(lines) // 2


def makes_its_folder_with_the_first_record(parent: Path) -> None:
    """Runs of one second have folders of their own; before the first record there is none."""
    runs = [run_ranks(2, lambda comm: RunFolder(comm, "mlp", parent)) for _ in range(3)]
    for first, _ in runs:
        first.append([])
    assert not list(parent.iterdir()), "a folder was made before there was anything to write"
    for number, (first, other) in enumerate(runs):
        first.append([{"config": number}, {"step": 1}])
        assert first.path is not None and {file.name for file in first.path.iterdir()} == {LOG}
        first.append([{"step": 2}])
        with patch.object(first.log, "file", FullFile()), pytest.raises(OSError) as error:
            first.append([{"step": 3}])
        said = f"cannot write {first.path / LOG}: No space left on device"
        assert str(error.value) == said, f"{error.value}, not: {said}"
        assert other.write({"losses": []}) == first.path, "another rank wrote into another folder"
        first.close()
        (head, *steps) = read_metrics(first.path / LOG)
        assert head == {"run": first.run, "config": number} and steps == [{"step": 1}, {"step": 2}]
    assert len(list(parent.iterdir())) == 3


def draws_within_its_share(epochs: list[float], drawings: list[float]) -> int:
    """Epochs and drawings take these seconds; drawing takes a twentieth of the time, but for the last one.

    Returns how often it drew.
    """
    now, spent = 0.0, [0.0]
    costs = iter(drawings)

    def draw(metrics, file) -> None:
        nonlocal now
        spent.append(next(costs))
        now += spent[-1]

    with patch.multiple(curves, draw_curves=draw, perf_counter=lambda: now):
        drawn = Curves()
        for seconds in epochs:
            now += seconds
            before = sum(spent)
            if drawn.redraw({}, Path("curves.png")):
                assert before + spent[-2] <= 0.05 * (now - spent[-1]) + 1e-9, f"{before} s of {now} s"
                assert 0.05 * now >= 1.0, "the first one came before its time"
    return len(spent) - 1
