"""Grades a folder of submissions, a few at a time, for a table with a line for each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .assignment import Assignment, Task
from .grade import Report, SubmissionFile, check_inside, grade, printable
from .sandbox import weakness

FORMULA = tuple("=+-@\t\r")  # a spreadsheet runs a cell that begins so


@dataclass(frozen=True)
class Entry:
    """A submission's report, None where it could not be graded; the ``reason`` says why it lost points."""

    file: Path
    report: Report | None
    reason: str = ""

    @property
    def name(self) -> str:
        name = printable(self.file.name)  # on one line, so that it forges no other one
        return "".join(letter if letter.isprintable() else "?" for letter in name)

    def cells(self, assignment: Assignment) -> list[str | int]:
        """The submission's line in the table: no points, rather than 0, where it could not be graded."""
        name = literal(printable(self.file.name))
        if self.report is None:
            return [name, *[""] * (len(assignment.tasks) + 2), literal(self.reason)]
        scores = [result.score for result in self.report.results]
        digest = self.report.submission.digest
        return [name, self.report.score, *scores, digest, literal(self.reason)]


def header(assignment: Assignment) -> list[str]:
    return ["file", "points", *(task.name for task in assignment.tasks), "sha256", "reason"]


def literal(text: str) -> str:
    """The text as a spreadsheet shows it, and does not compute it."""
    return f"'{text}" if text.startswith(FORMULA) else text


def find_submissions(folder: Path) -> list[Path]:
    """The Python files of the folder, by name, and links; raises ValueError where there are none.

    An ending in capitals is one of them, as other systems write it.
    """
    python = (file for file in folder.iterdir() if file.suffix.lower() == ".py")
    files = sorted(file for file in python if file.is_file() or file.is_symlink())
    if not files:
        raise ValueError(f"there is no .py file in {folder}; it must hold one for each submission")
    return files


def grade_file(assignment: Assignment, file: Path, **settings: Any) -> Entry:
    """Grade one submission; no error of it or of its grading is raised, so that all others are graded."""
    try:
        check_inside(file.parent, file)
        report = grade(assignment, SubmissionFile.read(file), **settings)
    except Exception as error:
        lines = str(error).splitlines() or [""]
        text = lines[0] if isinstance(error, ValueError) else f"{type(error).__name__}: {lines[0]}"
        return Entry(file, None, printable(text))
    return Entry(file, report, reason_of(report))


def reason_of(report: Report) -> str:
    """In one line, why the submission has not all points: each reason once; empty where it has all."""
    tasks: dict[str, list[str]] = {}
    for result in report.results:
        if result.share < 1:
            tasks.setdefault(first_line(result.message), []).append(result.task.name)
    reasons = [f"{', '.join(names)}: {message}" for message, names in tasks.items()]
    return first_line(report.refused) or "; ".join(reasons)


def first_line(text: str) -> str:
    return text.partition("\n")[0]


def grade_files(files: list[Path], jobs: int, grade_one: Callable[[Path], Entry]) -> Iterator[Entry]:
    """Grade the submissions, at most ``jobs`` at a time; yields them in the order of ``files``."""
    executor = ThreadPoolExecutor(jobs)  # its threads wait: the work is in the judges' processes
    try:
        yield from executor.map(grade_one, files)
    finally:
        executor.shutdown(wait=False, cancel_futures=True)  # an interruption waits for no submission


def failures(assignment: Assignment, entries: list[Entry]) -> list[tuple[Task, int]]:
    """For each task, how many of the submissions that were run lost some of its share."""
    ran = [entry.report for entry in entries if entry.report is not None and not entry.report.refused]
    results = [[report.results[i].share < 1 for report in ran] for i in range(len(assignment.tasks))]
    return [(task, sum(failed)) for task, failed in zip(assignment.tasks, results, strict=True)]


def summary(assignment: Assignment, entries: list[Entry]) -> list[str]:
    """How many were graded, which task failed most, and each submission that could not be graded."""
    graded = [entry.report for entry in entries if entry.report is not None]
    refused = sum(bool(report.refused) for report in graded)
    counts = failures(assignment, entries)
    most = max(count for _, count in counts)
    lines = [
        f"{assignment.name}: {len(graded)} of {len(entries)} submissions graded, {refused} of them refused"
    ]
    lines += [f"{task.name}: failed by {count} of {len(graded) - refused}" for task, count in counts]
    if most:
        names = " and ".join(task.name for task, count in counts if count == most)
        lines.append(f"failed most: {names}")
    lines += [f"not graded: {entry.name}: {entry.reason}" for entry in entries if entry.report is None]
    return lines + list(filter(None, [weakness()]))
