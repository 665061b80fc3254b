"""A teacher's own assignment: a copy of the template, and the check that its grading is right."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..shared.new_folder import new_folder
from .assignment import Assignment, load_file
from .grade import SubmissionFile, grade

TEMPLATE = Path(__file__).parent / "template"
NAME = re.compile(r"a[0-9]+_[a-z0-9_]+")


@dataclass(frozen=True)
class Mistake:
    """A piece of answers.py and the wrong one in its place, with the tasks that a submission loses by it."""

    name: str
    right: str
    wrong: str
    tasks: tuple[str, ...]


@dataclass(frozen=True)
class Trial:
    """A program that was graded, and the tasks that it lost, beside those that it should lose."""

    name: str
    lost: tuple[str, ...]
    expected: tuple[str, ...]

    @property
    def as_expected(self) -> bool:
        return set(self.lost) == set(self.expected)


def new_assignment(folder: Path) -> None:
    """Copy the template to the new or empty ``folder``, a1_topic; ValueError for another name or folder."""
    if NAME.fullmatch(folder.name) is None:
        raise ValueError(f"the folder of an assignment is called like a1_topic, and not {folder.name}")
    with new_folder(folder):
        shutil.copytree(TEMPLATE, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))


def trials(assignment: Assignment) -> Iterator[Trial]:
    """Grade the answers, which lose nothing, the starter, which loses all, and each mistake of mistakes.py.

    Raises ValueError where a file is missing, or where a mistake's piece is not in the answers exactly once.
    """
    right, starter = SubmissionFile.read(assignment.answers), SubmissionFile.read(assignment.starter)
    programs = [("answers.py", right, ()), ("submission.py", starter, names(assignment))]
    programs += [(m.name, with_mistake(right, m), m.tasks) for m in mistakes(assignment)]
    for name, program, expected in programs:
        report = grade(assignment, program, answers=program is not starter)
        lost = tuple(result.task.name for result in report.results if not result.passed)
        yield Trial(name, lost, expected)


def names(assignment: Assignment) -> tuple[str, ...]:
    return tuple(task.name for task in assignment.tasks)


def mistakes(assignment: Assignment) -> tuple[Mistake, ...]:
    """The mistakes in the file mistakes.py; none where there is no such file."""
    file = assignment.folder / "mistakes.py"
    if not file.is_file():
        return ()
    listed: tuple[Mistake, ...] = load_file(file, f"mistakes_of_{assignment.name}").MISTAKES
    for mistake in listed:
        if unknown := set(mistake.tasks) - set(names(assignment)):
            raise ValueError(f"{file}, {mistake.name!r}: there is no task {min(unknown)!r}")
    return listed


def with_mistake(answers: SubmissionFile, mistake: Mistake) -> SubmissionFile:
    if (count := answers.source.count(mistake.right)) != 1:
        pieces = f"{answers.file} holds {mistake.right!r} {count} times"
        raise ValueError(f"{pieces}; the mistake {mistake.name!r} needs it exactly once")
    return SubmissionFile(answers.file, answers.source.replace(mistake.right, mistake.wrong), answers.digest)
