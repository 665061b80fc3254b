"""Grading a whole submission: every task by itself, and the points together."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ..launch.launch import mpi_problem
from .assignment import Assignment
from .judge import Request
from .process import Verdict, grade_apart, printable
from .refusal import refusal_of
from .task import Task

TASK_SECONDS = 60.0
ALL_SECONDS = 480.0  # for the whole submission
MEBIBYTES = 448  # for what a task holds beyond its program's text, which is a tenth of that


@dataclass(frozen=True)
class Graded:
    """A task, and how the submission did in it: all of its points or none."""

    task: Task
    verdict: Verdict

    @property
    def score(self) -> int:
        return self.task.points if self.verdict.passed else 0


@dataclass(frozen=True)
class Report:
    """What was graded, and how it did; ``digest`` is the SHA-256 of the file.

    ``refused`` says why nothing of it was run, where it may not be.
    """

    assignment: Assignment
    file: Path
    digest: str
    seed: int
    transport: str
    graded: tuple[Graded, ...]
    seconds: float
    refused: str = ""

    @property
    def score(self) -> int:
        return sum(graded.score for graded in self.graded)


@dataclass(frozen=True)
class Submission:
    """The text of one file, read once: every task gets this text, whatever becomes of the file."""

    file: Path
    source: str
    digest: str

    @classmethod
    def read(cls, file: Path) -> Submission:
        """Raises ValueError for what is no file, or no text."""
        if not file.is_file():
            raise ValueError(f"there is no file {file}; --submission takes the path of your submission.py")
        held = file.read_bytes()
        try:
            source = held.decode("utf-8-sig")  # some editors begin a file with a mark
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{file} is no Python program in UTF-8 (byte {error.start}); save it as UTF-8"
            ) from None
        return cls(file.resolve(), source, hashlib.sha256(held).hexdigest())


def grade(
    assignment: Assignment,
    submission: Submission,
    *,
    seed: int = 0,
    transport: str = "threads",
    answers: bool = False,
    task_seconds: float = TASK_SECONDS,
    all_seconds: float = ALL_SECONDS,
    mebibytes: int = MEBIBYTES,
    told: Callable[[Graded], None] = lambda graded: None,
    refuse: Callable[[str, str], str | None] = refusal_of,
) -> Report:
    """Grade every task in a process of its own; ``told`` hears of each when it has ended.

    With ``answers`` the file may import the library's answers: it is they that are graded. ``refuse`` says,
    of a submission's text and the starter's, why nothing of it is run.
    """
    if transport == "mpi" and (problem := mpi_problem()):
        raise RuntimeError(f"--transport mpi: {problem}")
    began = time.monotonic()
    starter = assignment.starter.read_text()
    refused = "" if answers else printable(refuse(submission.source, starter) or "")
    graded = [Graded(task, Verdict(False, REFUSED, "", 0.0)) for task in assignment.tasks if refused]
    for task in assignment.tasks[len(graded) :]:
        left = all_seconds - (time.monotonic() - began)
        request = Request(
            word="",
            assignment=str(assignment.folder),
            task=task.name,
            source=submission.source,
            file=str(submission.file),
            starter=starter,
            seed=seed,
            transport=transport,
            seconds=min(task_seconds, left),
            mebibytes=mebibytes,
            answers=answers,
        )
        verdict = grade_apart(request) if left > 1 else Verdict(False, OUT_OF_TIME, "", 0.0)
        graded.append(Graded(task, verdict))
        told(graded[-1])
    seconds = time.monotonic() - began
    file, digest = submission.file, submission.digest
    return Report(assignment, file, digest, seed, transport, tuple(graded), seconds, refused)


REFUSED = "was not tried: nothing of the file was run"
OUT_OF_TIME = "was not tried: the tasks before it took all the time there is"
