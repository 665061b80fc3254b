"""Laws of lessons/minigrad_course/storm/storm.py, picture.py, view.py and command.py: the table of
``minigrad storm``, its picture, its statuses, and the report of a storm that fails.
"""

import pytest
from minigrad_course.storm.fault import Fault
from minigrad_course.storm.job import Job
from minigrad_course.storm.view import report_failure, run_many
from rich.console import Console
from typer.testing import CliRunner

from backends.cli.main import app
from tests.minigrad_course.storm.storm_laws import Planted


@pytest.fixture
def command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return lambda *words: CliRunner().invoke(app, ["storm", *words])


def test_one_storm_is_a_table_and_a_picture(command, tmp_path):
    result = command("--seed", "97")
    assert result.exit_code == 0, result.output
    for words in (
        "power failure",
        "kill of rank 2",
        "bit flip",
        "safe and live",
        "picture: runs/storm-97.png",
    ):
        assert words in result.output
    assert (tmp_path / "runs" / "storm-97.png").read_bytes().startswith(b"\x89PNG")


def test_only_some_of_the_faults_happen(command, tmp_path):
    result = command("--seed", "97", "--only", "0", "--png", "one.png", "--strategy", "sharded")
    assert result.exit_code == 0, result.output
    assert "power failure" in result.output and "kill of rank" not in result.output
    assert "happened;" not in result.output  # as all of them did
    assert (tmp_path / "one.png").exists()


def test_faults_that_do_not_happen_are_counted(command):
    result = command("--seed", "812")
    assert result.exit_code == 0, result.output
    assert "0 of 3 faults happened; the others came after the end" in result.output


def test_many_storms_are_counted(command):
    result = command("--seeds", "3")
    assert result.exit_code == 0, result.output
    assert "3 storms" in result.output and "kill in recovery" in result.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--strategy", "server"], "choose one of replicated, bucketed"),
        (["--seed", "97", "--only", "9"], "storm 97 has the faults 0 to 4"),
        (["--seeds", "2", "--only", "0"], "--only and --png are for one storm"),
        (["--seeds", "2", "--png", "a.png"], "--only and --png are for one storm"),
    ],
)
def test_a_wrong_argument_is_refused(command, words, message):
    result = command(*words)
    assert result.exit_code == 1
    assert isinstance(result.exception, ValueError) and message in str(result.exception)


def test_a_failing_storm_is_reported_with_the_fewest_faults():
    console = Console(width=80, record=True)
    faults = tuple(Fault("kill", float(at), 0.0, 0, 0) for at in range(4))
    job, causes = Job("replicated", 2), (frozenset({1}),)
    storms = [Planted(seed, job, faults[seed - 5 :], causes) for seed in (7, 6, 5)]
    failed = run_many(storms, 3, console)
    assert failed is not None and failed.seed == 6
    report_failure(failed, ["--ranks", "2"], console)
    text = console.export_text()
    assert "2 storms" in text and "storm 6 fails" in text
    assert "minigrad storm --seed 6 --ranks 2 --only 0" in text
    assert "\nnot safe\n" in text
