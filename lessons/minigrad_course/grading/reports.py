"""A report for people and for programs: a table, JSON, JUnit's XML, and Gradescope's results.json."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ..lesson.progress import Progress
from .assignment import Assignment
from .grade import Report, TaskResult
from .sandbox import protections, weakness


def result_table(report: Report) -> Group:
    """The tasks and their points; below the table, the mistakes, or why nothing was run."""
    table = Table(title=f"{report.assignment.name}: {report.score} of {report.assignment.points} points")
    table.add_column("task", overflow="fold")
    table.add_column("what it asks")
    table.add_column("points", justify="right")
    table.add_column("got", justify="right")
    messages: list[RenderableType] = []
    for result in report.results:
        task, passed = result.task, result.passed
        color = "green" if passed else "yellow" if result.score else "red"
        score = f"[{color}]{result.score}[/]"
        table.add_row(task.name, task.title, str(task.points), score)
        if not passed and not report.refused:
            messages += [Text(f"\n{task.name}", "bold"), Padding(Text(explain(result)), (0, 0, 0, 2))]
    notes = [Text(f"\n{note}") for note in (report.refused, weakness()) if note]
    return Group(table, *messages, *notes)


def assignment_table(assignments: list[Assignment], progress: Progress) -> Table:
    """The tasks of these assignments, and the points of each assignment in this folder."""
    table = Table(title="grade with: minigrad grade a2")
    for heading in ("assignment", "task", "points", "what it asks"):
        table.add_column(heading, overflow="fold" if heading == "task" else "ellipsis")
    for assignment in assignments:
        for number, task in enumerate(assignment.tasks):
            name = "" if number else f"{assignment.name}\n{progress.of_assignment(assignment.name)}".rstrip()
            table.add_row(name, task.name, str(task.points), task.title)
        table.add_section()
    return table


def explain(result: TaskResult) -> str:
    """The mistake in a task, its part that is right, and the end of its output."""
    message, output = result.message, result.output
    if result.part is not None:
        message += f"\n{result.score} of {result.task.points} points: right {result.part.title}"
    if result.passed or not output:
        return message
    return f"{message}\nit printed, at the end:\n{output}"


def as_json(report: Report) -> dict[str, Any]:
    """Score and tasks, with the submission's digest and the machine's protections, for programs."""
    return {
        "assignment": report.assignment.name,
        "submission": str(report.submission.file),
        "sha256": report.submission.digest,
        "seed": report.seed,
        "transport": report.transport,
        "score": report.score,
        "max_score": report.assignment.points,
        "seconds": round(report.seconds, 2),
        "refused": report.refused,
        "protections": list(protections()),
        "tasks": [
            {
                "name": result.task.name,
                "title": result.task.title,
                "score": result.score,
                "max_score": result.task.points,
                "passed": result.passed,
                "part": "" if result.part is None else result.part.title,
                "message": result.message,
                "output": result.output,
                "seconds": round(result.seconds, 2),
            }
            for result in report.results
        ],
    }


def as_gradescope(report: Report) -> dict[str, Any]:
    """Gradescope's results.json, as its autograder documentation specifies it; without the seed."""
    header = f"graded {report.submission.file.name}, SHA-256 {report.submission.digest}"
    return {
        "score": report.score,
        "execution_time": round(report.seconds),
        "output": "\n".join(filter(None, [header, report.refused])),
        "output_format": "text",  # without it Gradescope shows the output as HTML
        "visibility": "visible",
        "stdout_visibility": "hidden",
        "tests": [
            {
                "name": f"{result.task.name}: {result.task.title}",
                "number": str(number),
                "score": result.score,
                "max_score": result.task.points,
                "status": "passed" if result.share == 1 else "failed",
                "output": explain(result) or "right in every case that was tried",
                "output_format": "text",
                "visibility": "visible",
            }
            for number, result in enumerate(report.results, 1)
        ],
    }


def as_junit(report: Report) -> str:
    """JUnit's XML, which continuous integration shows: a test case for each task."""
    suite = ElementTree.Element(
        "testsuite",
        name=report.assignment.name,
        tests=str(len(report.results)),
        failures=str(sum(not result.passed for result in report.results)),
        errors="0",
        time=f"{report.seconds:.2f}",
    )
    for result in report.results:
        seconds = f"{result.seconds:.2f}"
        case = ElementTree.SubElement(
            suite, "testcase", classname=report.assignment.name, name=result.task.name, time=seconds
        )
        if not result.passed:
            first = (report.refused or result.message).splitlines()[0]
            failure = ElementTree.SubElement(case, "failure", message=first)
            failure.text = report.refused or explain(result)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def as_text(report: Report, kind: str) -> str:
    """The report as a file of that kind: json, gradescope or junit."""
    if kind == "junit":
        return as_junit(report)
    return json.dumps(as_json(report) if kind == "json" else as_gradescope(report), indent=2) + "\n"
