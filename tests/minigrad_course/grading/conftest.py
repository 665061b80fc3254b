"""A toy assignment in a temporary folder, and its grading: in processes of their own, or by a search here."""

import sys

import pytest
from minigrad_course.grading import find_assignment
from minigrad_course.grading.counterexample import counterexample
from minigrad_course.grading.grade import MEBIBYTES, SubmissionFile, grade, printable
from minigrad_course.grading.judge import definitions
from minigrad_course.grading.starter_imports import StarterImports
from minigrad_course.grading.submission import Submission, WorkerPool

from backends.entry import main

TASKS = """
from dataclasses import dataclass
from types import SimpleNamespace

import hypothesis.strategies as st
import numpy as np

from backends.comm.collectives import naive_allreduce
from minigrad_course.grading import Task, Wrong
from minigrad_course.grading.restricted_comm import RestrictedComm


@dataclass(frozen=True)
class Case:
    ranks: int
    length: int
    seed: int

    def __str__(self):
        return f"{self.ranks} ranks, {self.length} elements"


def check_total(submission, case, comm):
    x = np.arange(case.length) + 10**comm.rank + case.seed
    expected = naive_allreduce(comm, x)
    actual = submission.total(RestrictedComm(comm), x)
    np.testing.assert_array_equal(np.isfinite(expected), True)
    if not isinstance(actual, np.ndarray) or actual.shape != expected.shape:
        raise Wrong(f"rank {comm.rank} returned {type(actual).__name__}, not {case.length} elements")
    if (actual != expected).any():
        raise Wrong(f"rank {comm.rank} has {actual[0]} in element 0, not {expected[0]}")


def check_double(submission, case, comm):
    np.testing.assert_array_equal(submission.double(np.arange(case.length)), 2 * np.arange(case.length))


CASES = st.builds(Case, st.integers(1, 4), st.integers(1, 9), st.integers(0, 99))
TASKS = (
    Task(
        "total", 60, "the sum over all ranks", CASES, check_total,
        SimpleNamespace(total=lambda comm, x: x), examples=15,
    ),
    Task(
        "double", 40, "twice as much", CASES.filter(lambda case: case.ranks == 1), check_double,
        SimpleNamespace(double=lambda x: x), examples=10,
    ),
)
"""

STARTER = """
def total(comm, x):
    raise NotImplementedError("task 1")


def double(x):
    raise NotImplementedError("task 2")
"""

TOTAL = """
def total(comm, x):
    for other in range(comm.size):
        if other != comm.rank:
            comm.send(x, other)
    return x + sum(comm.recv(other) for other in range(comm.size) if other != comm.rank)

"""

DOUBLE = """
def double(x):
    return 2 * x

"""

ANSWERS = "from backends.comm.collectives import ring_allreduce as total\n\n" + DOUBLE


@pytest.fixture
def toys(tmp_path):
    """The folder of assignments; a1_toy is its only one."""
    folder = tmp_path / "assignments" / "a1_toy"
    folder.mkdir(parents=True)
    for name, text in (("tasks", TASKS), ("submission", STARTER), ("answers", ANSWERS)):
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    return folder.parent


@pytest.fixture
def graded(toys, tmp_path):
    """Grades the text of a submission: all tasks, or one."""

    def graded(text, task=None, **settings):
        file = tmp_path / "mine.py"
        file.write_text(text, encoding="utf-8")
        toy = find_assignment("a1", toys)
        toy = toy if task is None else toy.only(task)
        return grade(toy, SubmissionFile.read(file), **{"task_seconds": 20, **settings})

    return graded


@pytest.fixture(scope="session")
def workers():
    """The processes that run submissions, of a judge that is this process."""
    pool = WorkerPool(MEBIBYTES // 2, 20, StarterImports())
    yield pool
    pool.close()


@pytest.fixture
def judged(toys, workers):
    """What is said of a task by a judge that is this process: None where the submission is right."""

    def judged(text, task):
        (task,) = find_assignment("a1", toys).only(task).tasks
        words = counterexample(task, Submission(workers, text, "mine.py", definitions(STARTER), {}))
        return None if words is None else printable(words)

    return judged


@pytest.fixture
def minigrad(capsys, monkeypatch, tmp_path, toys):
    """Runs the command as a user would, in this process: status, output, errors."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")

    def minigrad(*arguments):
        monkeypatch.setattr(sys, "argv", ["minigrad", *arguments])
        try:
            main()
            status = 0
        except SystemExit as left:
            status = left.code
        output = capsys.readouterr()
        return status, output.out, output.err

    return minigrad


def scores(report):
    return [result.score for result in report.results]


def messages(report):
    return [result.message for result in report.results]
