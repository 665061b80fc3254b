"""A report for people and for machines: a table, JSON, JUnit's XML, and Gradescope's results.json."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from textwrap import indent
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from .assignment import Assignment
from .fence import fences
from .grade import Graded, Report


def table(report: Report) -> Group:
    """The tasks and their points; below it, in full width, what was wrong, or why nothing was run."""
    score, points = report.score, report.assignment.points
    made = Table(title=f"{report.assignment.name}: {score} of {points} points")
    made.add_column("task", overflow="fold")
    made.add_column("what it asks")
    made.add_column("points", justify="right")
    made.add_column("got", justify="right")
    wrong: list[Text] = []
    for graded in report.graded:
        colour = "green" if graded.verdict.passed else "red"
        points, score = str(graded.task.points), f"[{colour}]{graded.score}[/]"
        made.add_row(graded.task.name, graded.task.title, points, score)
        if not graded.verdict.passed and not report.refused:
            wrong.append(Text.assemble(("\n" + graded.task.name, "bold"), "\n" + indent(told(graded), "  ")))
    return Group(made, *wrong, *([Text(f"\n{report.refused}")] if report.refused else []))


def listing(assignments: list[Assignment]) -> Table:
    """The tasks of these assignments."""
    made = Table("assignment", "task", "points", "what it asks", title="grade with: minigrad grade a2")
    for assignment in assignments:
        for number, task in enumerate(assignment.tasks):
            made.add_row("" if number else assignment.name, task.name, str(task.points), task.title)
        made.add_section()
    return made


def told(graded: Graded) -> str:
    """What is said of a task: what was wrong, and the end of what it printed."""
    message, output = graded.verdict.message, graded.verdict.output
    if graded.verdict.passed or not output:
        return message
    return f"{message}\nit printed, at the end:\n{output}"


def as_json(report: Report) -> dict[str, Any]:
    """Score and tasks, with what was graded and behind which fences: a program reads this."""
    return {
        "assignment": report.assignment.name,
        "submission": str(report.file),
        "sha256": report.digest,
        "seed": report.seed,
        "transport": report.transport,
        "score": report.score,
        "max_score": report.assignment.points,
        "seconds": round(report.seconds, 2),
        "refused": report.refused,
        "fences": list(fences()),
        "tasks": [
            {
                "name": graded.task.name,
                "title": graded.task.title,
                "score": graded.score,
                "max_score": graded.task.points,
                "passed": graded.verdict.passed,
                "message": graded.verdict.message,
                "output": graded.verdict.output,
                "seconds": round(graded.verdict.seconds, 2),
            }
            for graded in report.graded
        ],
    }


def as_gradescope(report: Report) -> dict[str, Any]:
    """Gradescope's results.json, as its autograder documentation specifies it; the seed is not told."""
    graded = f"graded {report.file.name}, SHA-256 {report.digest}"
    return {
        "score": report.score,
        "execution_time": round(report.seconds),
        "output": "\n".join(filter(None, [graded, report.refused])),
        "output_format": "text",  # where nothing is said, Gradescope shows it as HTML
        "visibility": "visible",
        "stdout_visibility": "hidden",
        "tests": [
            {
                "name": f"{graded.task.name}: {graded.task.title}",
                "number": str(number),
                "score": graded.score,
                "max_score": graded.task.points,
                "status": "passed" if graded.verdict.passed else "failed",
                "output": told(graded) or "right in every case that was tried",
                "output_format": "text",
                "visibility": "visible",
            }
            for number, graded in enumerate(report.graded, 1)
        ],
    }


def as_junit(report: Report) -> str:
    """JUnit's XML, which continuous integration shows: a test case for each task."""
    failures = sum(not graded.verdict.passed for graded in report.graded)
    suite = ElementTree.Element(
        "testsuite",
        name=report.assignment.name,
        tests=str(len(report.graded)),
        failures=str(failures),
        errors="0",
        time=f"{report.seconds:.2f}",
    )
    for graded in report.graded:
        case = ElementTree.SubElement(
            suite,
            "testcase",
            classname=report.assignment.name,
            name=graded.task.name,
            time=f"{graded.verdict.seconds:.2f}",
        )
        if not graded.verdict.passed:
            first = (report.refused or graded.verdict.message).splitlines()[0]
            failure = ElementTree.SubElement(case, "failure", message=first)
            failure.text = report.refused or told(graded)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def as_text(report: Report, kind: str) -> str:
    """The report as a file of that kind: json, gradescope or junit."""
    if kind == "junit":
        return as_junit(report)
    return json.dumps(as_json(report) if kind == "json" else as_gradescope(report), indent=2) + "\n"
