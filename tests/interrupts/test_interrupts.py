"""Every command, transport and signal: the status a shell expects, and one line that says what ended."""

import re
import signal

import pytest

from minigrad.metrics_log import read_metrics

from .interrupted import SOON, Run, interrupted, listens

INT, TERM, HUP, KILL = signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL
NOTHING = "nothing was kept"


def busy(n: int):
    """Whether the command has started ``n`` processes, itself among them."""
    return lambda run: len(run.processes) >= n


def working(run: Run) -> bool:
    """Whether a script's ranks are at work."""
    return (run.folder / "script.0").exists() and (run.folder / "script.1").exists()


MOMENTS = {
    "prove on threads": busy(1),
    "prove on MPI": busy(5),
    "grade": busy(3),
    "lesson": busy(3),
    "doctor": lambda run: run.pid_of("rank 0"),
    "run": working,
    "trace": busy(1),
}


def check(run: Run, number: int, words: str) -> None:
    """Assert that a signal ended the run, with ``words`` in its one line, and that nothing is left."""
    assert run.status == 128 + number and not run.late, (run.status, run.text)
    assert run.seconds < SOON, run.seconds
    assert not run.left and run.cursor_shown, run.text
    assert "Traceback" not in run.text and "BAD TERMINATION" not in run.text, run.text
    (line,) = run.words
    assert words in line or pytest.fail(line)


@pytest.mark.parametrize(
    ("command", "number"),
    [
        ("train", INT),
        ("train", HUP),
        ("train on threads", TERM),
        ("train on MPI", INT),
        ("train with survive", INT),
    ],
)
def test_a_training_keeps_the_figures_of_its_epochs(tmp_path, command, number):
    run = interrupted(tmp_path, command, number)
    check(run, number, f"train was interrupted by {signal.Signals(number).name}; the figures of its first ")
    (file,) = tmp_path.glob("runs/*/metrics.jsonl")
    assert run.words[0].endswith(str(file.relative_to(tmp_path)))
    (steps,) = re.findall("first ([0-9]+) steps", run.words[0])
    assert 0 < int(steps) == read_metrics(file)[-1]["step"]
    assert not (file.parent / "metrics.json").exists()  # it did not finish
    if command in ("train", "train on threads"):
        assert "\x1b[?25l" in run.text  # there was a progress bar


@pytest.mark.parametrize(
    ("command", "number"),
    [
        ("prove on threads", INT), ("prove on MPI", INT), ("grade", INT),
        pytest.param("grade", TERM, marks=pytest.mark.thorough), ("run", TERM),
        ("lesson", TERM), ("doctor", INT), ("trace", INT),
    ],
)  # fmt: skip
def test_every_other_command_says_what_was_interrupted(tmp_path, command, number):
    run = interrupted(
        tmp_path, command, number, when=lambda run: MOMENTS[command](run) and listens(run.process.pid)
    )
    check(run, number, f"{command.split()[0]} was interrupted by {signal.Signals(number).name}; ")


@pytest.mark.parametrize(
    ("command", "number", "target"),
    [
        ("train on MPI", INT, "rank 0"),
        pytest.param("train on MPI", TERM, "rank 1", marks=pytest.mark.thorough),
        ("train on MPI", KILL, "rank 1"),
        pytest.param("run", INT, "rank 1", marks=pytest.mark.thorough),
        ("run", HUP, "rank 0"),
    ],
)
def test_one_rank_that_is_interrupted_ends_the_job(tmp_path, command, number, target):
    run = interrupted(tmp_path, command, number, target, when=MOMENTS.get(command, Run.figures))
    who = "a rank was ended" if number == KILL else f"{target} was "
    check(run, number, who)


def test_an_interrupt_while_ranks_load_is_one_line(tmp_path):
    run = interrupted(tmp_path, "train on MPI", INT, when=lambda run: run.pid_of("rank 1"))
    check(run, INT, NOTHING)


@pytest.mark.parametrize(
    ("target", "word"), [("hydra_pmi_proxy", "hydra_pmi_proxy was killed"), ("mpiexec", "mpiexec was ended")]
)
def test_mpichs_own_processes_that_are_killed_end_the_job(tmp_path, target, word):
    run = interrupted(tmp_path, "train on MPI", KILL, target)
    check(run, KILL, word)


@pytest.mark.parametrize(
    "command",
    [
        "train on MPI",
        "grade",
        pytest.param("run", marks=pytest.mark.thorough),
        pytest.param("lesson", marks=pytest.mark.thorough),
    ],
)
def test_a_launcher_that_is_killed_takes_its_job_along(tmp_path, command):
    run = interrupted(tmp_path, command, KILL, when=MOMENTS.get(command, Run.figures))
    assert run.status == 128 + KILL and not run.left and run.seconds < SOON, run.left
