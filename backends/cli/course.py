"""The commands of the course: ``minigrad lesson`` and ``minigrad grade``."""

from __future__ import annotations

import ast
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from ..launch.interrupts import Interrupted
from ..launch.launch import TRANSPORTS, under_mpiexec
from ..launch.supervise import supervise
from .arguments import check_choice
from .figures import check_writable

if TYPE_CHECKING:
    from ..grading.grade import Graded

LESSONS = Path(__file__).parents[2] / "lessons"


def add_to(app: typer.Typer) -> None:
    """Make them commands of ``app``."""
    app.command()(lesson)
    app.command()(grade)


@dataclass(frozen=True)
class Lesson:
    """A lesson as its docstring presents it."""

    number: str
    title: str
    section: str
    file: Path

    @classmethod
    def read(cls, file: Path) -> Lesson:
        text = ast.get_docstring(ast.parse(file.read_text())) or ""
        title = text.partition("\n")[0].removeprefix("Lesson ").partition(". ")[2]
        section = text.partition("Lecture section: ")[2].partition(".")[0].replace("\n", " ")
        return cls(file.parent.name.partition("_")[0], title.rstrip("."), section, file)


def lessons(folder: Path = LESSONS) -> list[Lesson]:
    """All lessons, in order; raises RuntimeError where the lessons are not installed."""
    found = [Lesson.read(file) for file in sorted(folder.glob("[0-9]*/lesson.py"))]
    if not found:
        raise RuntimeError(
            f"there are no lessons in {folder}; clone the repository and run pip install -e . in it"
        )
    return found


def lesson(
    number: Annotated[str | None, typer.Argument(help="which one, as 06; all are listed without")] = None,
) -> None:
    """List the lessons with their lecture sections, or run one; its figures go to runs/lessons/."""
    known = lessons()
    if number is None:
        table = Table("lesson", "title", "lecture section", title="run one with: minigrad lesson 06")
        for one in known:
            table.add_row(one.number, one.title, one.section)
        Console().print(table)
        return
    chosen = [one for one in known if number.zfill(2) == one.number or number == one.file.parent.name]
    if not chosen:
        raise ValueError(f"no lesson {number!r}; there are {', '.join(one.number for one in known)}")
    under_mpiexec()  # raises where it is not clear whether it is
    print(f"lesson {chosen[0].number}; the file to read beside it: {chosen[0].file}\n", flush=True)
    try:
        sys.exit(supervise([sys.executable, str(chosen[0].file)], dict(os.environ)))
    except Interrupted as signal:
        raise Interrupted(signal.number, "the figures that it has drawn are in runs/lessons/") from None


def grade(
    assignment: Annotated[str | None, typer.Argument(help="which one, as a2")] = None,
    submission: Annotated[
        Path | None,
        typer.Option(help="the file to grade (default: the starter, where it lies)", metavar="PATH"),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="random seed of the cases; 0 is public")] = 0,
    transport: Annotated[str, typer.Option(help="what ranks are, threads or mpi")] = "threads",
    json: Annotated[Path | None, typer.Option(help="also write the report here", metavar="FILE")] = None,
    gradescope: Annotated[
        Path | None, typer.Option(help="also as Gradescope's results.json", metavar="FILE")
    ] = None,
    junit: Annotated[Path | None, typer.Option(help="also as JUnit's XML", metavar="FILE")] = None,
    answers: Annotated[bool, typer.Option("--answers", help="grade the library's own answers")] = False,
    seconds: Annotated[float, typer.Option(min=1, help="that a task may take")] = 60,
    folder: Annotated[
        Path | None,
        typer.Option(help="where the assignments lie (default: lessons/assignments)", metavar="PATH"),
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="list the assignments, or the tasks of one")] = False,
) -> None:
    """Grade a submission: points for each task, and the smallest case that is wrong (status 1: not all)."""
    try:
        from ..grading.assignment import FOLDER, find_assignment, find_assignments
        from ..grading.formats import as_text, listing, table
        from ..grading.grade import Submission
        from ..grading.grade import grade as grade_all
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "hypothesis":
            raise
        raise RuntimeError(
            "minigrad grade needs Hypothesis, which draws the cases; pip install hypothesis"
        ) from None
    console = Console()
    if listed or assignment is None:
        places = folder or FOLDER
        console.print(
            listing([find_assignment(assignment, places)] if assignment else find_assignments(places))
        )
        return
    check_choice("--transport", transport, TRANSPORTS)
    if transport == "mpi" and under_mpiexec():
        raise RuntimeError("minigrad grade starts ranks of its own; leave mpiexec or srun out")
    if answers and submission is not None:
        raise ValueError("--answers grades the library's own file; leave --submission out")
    files = {"json": json, "gradescope": gradescope, "junit": junit}
    for kind, file in files.items():
        if file is not None:
            check_writable(file, f"--{kind}")
    found = find_assignment(assignment, folder or FOLDER)
    read = Submission.read(submission or (found.answers if answers else found.starter))
    console.print(f"grading {read.file}\nSHA-256 {read.digest}", highlight=False, soft_wrap=True)

    def show(graded: Graded) -> None:
        points = f"{graded.score:3} of {graded.task.points:3} points"
        console.print(f"{points}  {graded.task.name}  ({graded.verdict.seconds:.1f} s)", highlight=False)

    report = grade_all(
        found, read, seed=seed, transport=transport, answers=answers, task_seconds=seconds, told=show
    )
    console.print(table(report))
    for kind, file in files.items():
        if file is not None:
            file.write_text(as_text(report, kind))
    sys.exit(0 if report.score == found.points else 1)
