"""The teacher's commands ``minigrad autograder`` and ``minigrad assignment``."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from backends.cli.next_command import NextCommand
from backends.cli.run_folder import check_outputs
from minigrad.lookup import check_choice

from ..grading.assignment import FOLDER, find_assignment
from ..grading.command import AssignmentFolder, CourseFile
from ..grading.course import Course
from .autograder import is_own, repository_folder, write_classroom, write_gradescope

ACTIONS = ("new", "check")


def autograder(
    assignment: Annotated[str, typer.Argument(help="which one, as a2")],
    gradescope: Annotated[
        Path | None, typer.Option(help="write Gradescope's autograder zip", metavar="FILE")
    ] = None,
    classroom: Annotated[
        Path | None,
        typer.Option(help="write GitHub Classroom's autograding.json or classroom.yml", metavar="FILE"),
    ] = None,
    course: CourseFile = None,
    requirement: Annotated[
        str | None,
        typer.Option(
            help="what pip installs in a classroom (default: a wheel, written beside the file)",
            metavar="TEXT",
        ),
    ] = None,
    folder: AssignmentFolder = None,
) -> None:
    """Write what Gradescope or GitHub Classroom needs to grade an assignment."""
    if gradescope is None and classroom is None:
        raise ValueError("nothing is to be written; name a file with --gradescope or --classroom")
    check_outputs(gradescope=gradescope, classroom=classroom)
    folder = folder or FOLDER
    settings = Course() if course is None else Course.read(course, folder)
    work = settings.weighted(find_assignment(assignment, folder))
    if gradescope is not None:
        write_gradescope(gradescope, work, course)
        print(f"{gradescope}: upload it as the autograder; set the assignment's points to {work.points}")
    if classroom is not None:
        wheel = write_classroom(classroom, work, requirement)
        files = f"{classroom}: put it" if wheel is None else f"{classroom} and {wheel}: put both"
        print(f"{files} into {repository_folder(classroom)}/ of the students' repository")
        if is_own(work):
            print(
                f"and {work.name} as assignments/{work.name}, without answers.py, mistakes.py, instructor.md"
            )
    NextCommand("minigrad assignment new own/a1_topic", "an assignment of your own").show(Console())


def assignment(
    action: Annotated[str, typer.Argument(help="new: make one to change; check: try its grading")],
    folder: Annotated[Path, typer.Argument(help="its folder, as own/a1_topic", metavar="DIR")],
) -> None:
    """Make an assignment of your own, or check that its grading is right (status 1: it is not)."""
    from ..grading.own_assignment import new_assignment, trials

    check_choice("action", action, ACTIONS)
    if action == "new":
        new_assignment(folder)
        print(f"{folder}: change its files, then try them with minigrad assignment check {folder}")
        command = f"minigrad assignment check {shlex.quote(str(folder))}"
        NextCommand(command, "does its grading find the mistakes?").show(Console())
        return
    if not (folder / "tasks.py").is_file():
        raise ValueError(f"there is no {folder / 'tasks.py'}; minigrad assignment new {folder} makes one")
    console, wrong = Console(highlight=False, markup=False, soft_wrap=True), 0
    for trial in trials(find_assignment(folder.name, folder.parent)):
        wrong += not trial.as_expected
        mark = "right" if trial.as_expected else "WRONG"
        should = "" if trial.as_expected else f"; it should lose {listed(trial.expected)}"
        console.print(f"{mark}  {trial.name}: loses {listed(trial.lost)}{should}")
    console.print(
        "the grading is right" if not wrong else f"{wrong} of these lose other tasks than they should"
    )
    if not wrong:
        words = [folder.name, "--folder", str(folder.parent), "--gradescope", f"{folder.name}.zip"]
        command = f"minigrad autograder {shlex.join(words)}"
        NextCommand(command, "what grades it at Gradescope").show(console)
    sys.exit(1 if wrong else 0)


def listed(names: tuple[str, ...]) -> str:
    return ", ".join(names) or "nothing"
