"""Submissions for the tests: a solution written from an assignment's text, and copies with a mistake."""

import types
from collections.abc import Container, Iterable
from functools import cache
from pathlib import Path

import numpy as np
from hypothesis import settings
from minigrad_course.grading import Assignment, Task, find_assignment
from minigrad_course.grading.counterexample import counterexample
from minigrad_course.grading.grade import SubmissionFile, grade
from minigrad_course.grading.static_check import check

FEW = max(5, settings().max_examples // 4)  # cases of a task that a mistake does not touch
SHARE = min(1.0, settings().max_examples / 60)  # of a task's cases: all of them in the thorough lane


THOROUGH = settings().max_examples >= 60


def submission(file: str, *changes: tuple[str, str]) -> types.ModuleType:
    """The file of this folder as a module, each (right, wrong) piece of its text replaced.

    Raises LookupError where a piece is not there exactly once, and where a grader would refuse it.
    """
    text = submission_text(file, *changes)
    module = types.ModuleType(file.removesuffix(".py"))
    exec(compile(text, file, "exec"), module.__dict__)
    return module


def submission_text(file: str, *changes: tuple[str, str]) -> str:
    """The text of that module."""
    text = (Path(__file__).parent / file).read_text(encoding="utf-8")
    for right, wrong in changes:
        if text.count(right) != 1:
            raise LookupError(f"{file} holds {text.count(right)} times {right!r}: move the mistake along")
        text = text.replace(right, wrong)
    if (violation := check(text, starter(file.removeprefix("solved_").removesuffix(".py")))) is not None:
        raise LookupError(f"{file} would not be run: {violation}")
    return text


@cache
def starter(short: str) -> str:
    return find_assignment(short).starter.read_text(encoding="utf-8")


def some_cases(task: Task) -> int:
    """How many of the task's cases are tried on what is right."""
    return max(FEW, int(SHARE * task.examples))


def faults(assignment: Assignment, submission: object, few: Container[str] = ()) -> dict[str, str]:
    """What is said of each task that is lost, by its name.

    A task in ``few`` is tried on FEW cases, and the first of them that fails counts. Of any other task it is
    the smallest.
    """
    results = {
        task.name: counterexample(task, submission, 0, FEW, shrink=False)
        if task.name in few
        else counterexample(task, submission)
        for task in assignment.tasks
    }
    return {name: words for name, words in results.items() if words is not None}


JUNK = (None, 3, "x", [1.0], np.nan, np.zeros(2, complex), np.array([None]), np.ma.zeros((2, 2)))


def refused(assignment: Assignment) -> bool:
    """Whether the wrong answer of each task, which the tasks bring along, is refused."""
    return all(counterexample(task, task.broken, shrink=False) for task in assignment.tasks)


def costs(
    assignment: Assignment, changes: Iterable[tuple[str, str]], lost: Container[str], words: str
) -> None:
    """The law: a right solution with these mistakes loses the tasks ``lost``, no other, and is told why.

    The thorough lane grades it as a teacher does, in processes.
    """
    short = assignment.name.partition("_")[0]
    names = {task.name for task in assignment.tasks}
    rest = {name for name in names if name not in lost}
    grades = faults(assignment, submission(f"solved_{short}.py", *changes), few=rest)
    assert set(grades) == names - rest, grades
    assert any(words in said for said in grades.values()), grades
    if THOROUGH:
        file = Path(f"solved_{short}.py")
        report = grade(assignment, SubmissionFile(file, submission_text(file.name, *changes), ""))
        assert {result.task.name for result in report.results if not result.passed} == names - rest, report
        assert any(words in result.message for result in report.results), report
