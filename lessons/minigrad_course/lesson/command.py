"""``minigrad lesson``: lists the lessons, runs one, and checks the answers to its questions."""

from __future__ import annotations

import os
import re
import shlex
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from backends.cli.console import print_paths
from backends.cli.curves import check_drawing
from backends.cli.next_command import NextCommand
from backends.cli.run_folder import check_outputs, make_folder
from backends.launch.supervise import supervise
from backends.process.launcher import under_mpiexec
from backends.process.signals import Interrupted
from minigrad.files import replacement

from .. import LESSONS
from .lessons import Lesson, copy_lessons, is_installed, lessons, own_copy
from .progress import FILE as PROGRESS
from .progress import Progress, note_answers, note_lesson
from .questions import QUESTIONS
from .questions import check as check_questions
from .wrapped_lines import wrapped


def lesson(
    number: Annotated[
        str | None, typer.Argument(help="which one, as 06 (default: list all)", metavar="NUMBER")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="check your answers to its questions", metavar="")
    ] = False,
    file: Annotated[
        Path | None, typer.Option(help="your answers (default: questions.py beside it)", metavar="PATH")
    ] = None,
    copy: Annotated[
        Path | None,
        typer.Option(help="copy all lessons and assignments to read and edit to this folder", metavar="DIR"),
    ] = None,
    html: Annotated[
        Path | None, typer.Option(help="run it and write it as one HTML page", metavar="FILE")
    ] = None,
    notebook: Annotated[
        Path | None, typer.Option(help="write it as a notebook for Jupyter", metavar="FILE")
    ] = None,
) -> None:
    """List the lessons with their questions and minutes, or run one, which draws figures in runs/lessons/.

    In a folder that --copy made it runs and checks the copy.
    """
    known = lessons()
    options = {"--check": check, "--file": file, "--html": html, "--notebook": notebook}
    names = [name for name, value in options.items() if value]
    if names and copy is not None:
        raise ValueError(f"--copy copies all lessons, and does nothing else; leave {names[0]} out")
    if names and number is None:
        raise ValueError(f"{names[0]} is for one lesson; give its number: minigrad lesson 06 {names[0]}")
    if file is not None and not check:
        raise ValueError("--file names the answers that --check checks; add --check")
    if check and (html or notebook):
        raise ValueError(f"--check only checks answers; leave {names[-1]} out")
    if copy is not None:
        copy_lessons(copy)
        print(f"the lessons and assignments are in {copy}, where the commands run your copy")
        NextCommand(f"cd {shlex.quote(str(copy))} && minigrad lesson 01", "the first one").show(Console())
        return
    console = Console()
    if number is None:
        progress = Progress.read()
        table = Table("lesson", title="run one with: minigrad lesson 06")
        table.add_column("topic", max_width=16)
        table.add_column("what its slide asks")
        table.add_column("minutes", justify="right")
        table.add_column("done", no_wrap=True)
        for one in known:
            minutes, done = str(one.minutes or ""), progress.of_lesson(one.number)
            table.add_row(one.number, one.topic, one.question or one.section, minutes, done)
        console.print(table)
        todo = next((one.number for one in known if not progress.lessons.get(one.number)), None)
        if todo is not None:
            NextCommand(f"minigrad lesson {todo}", f"what is done is kept in {PROGRESS}").show(console)
        return
    chosen = next((x for x in known if number.zfill(2) == x.number or number == x.file.parent.name), None)
    if chosen is None:
        raise ValueError(f"no lesson {number!r}; there are {', '.join(one.number for one in known)}")
    if check:
        sys.exit(check_answers(chosen, file))
    if html is not None or notebook is not None:
        write_lesson(replace(chosen, file=own_copy(chosen.file)), html, notebook)
        NextCommand(f"minigrad lesson {chosen.number} --check", "your answers to its questions").show(console)
        return
    under_mpiexec()  # raises where it is not clear whether it is
    make_folder(Path("runs", "lessons"), "lessons draw there")
    script = own_copy(chosen.file)
    reading = f"; {chosen.minutes} minutes with its questions" if chosen.minutes else ""
    print(f"lesson {chosen.number} runs{chosen.run_time}{reading}; the file to read beside it:", flush=True)
    print(f"{script}\n", flush=True)
    try:
        shown = partial(wrapped, width=console.width) if console.is_terminal else iter
        variables = {"PYTHONIOENCODING": ":replace", **os.environ}  # a locale without a character prints ?
        status = supervise([sys.executable, str(script)], variables, shown=shown)
    except Interrupted as error:
        raise Interrupted(error.number, "the figures that it has drawn are in runs/lessons/") from None
    if status == 0:
        note_lesson(chosen.number)
        questions = own_copy(chosen.file.with_name(QUESTIONS))
        print_paths(console, questions=questions)
        to_answer(chosen, questions, "first predict: a letter for each question in that file").show(console)
    sys.exit(status)


def to_answer(lesson: Lesson, questions: Path, purpose: str) -> NextCommand:
    """The command that checks the answers in that file; where it is an installed one, what copies it."""
    if is_installed(questions):
        return NextCommand("minigrad lesson --copy course", "a copy of your own, in which you can answer")
    beside = questions == own_copy(lesson.file.with_name(QUESTIONS))
    words = ["minigrad", "lesson", lesson.number, "--check", *([] if beside else ["--file", str(questions)])]
    return NextCommand(shlex.join(words), purpose)


def after(lesson: Lesson) -> NextCommand | None:
    """The first assignment about this lesson, as the table of README.md has it; else the lesson after it."""
    text = (LESSONS / "README.md").read_text(encoding="utf-8")
    for name, numbers in re.findall(r"^\| \[(a\d+)\]\(.*\| ([\d, ]+) \|$", text, re.MULTILINE):
        if lesson.number in numbers.split(", "):
            return NextCommand(f"minigrad grade {name}", "the assignment about this lesson")
    following = [one.number for one in lessons() if one.number > lesson.number]
    return NextCommand(f"minigrad lesson {following[0]}", "the lesson after it") if following else None


def write_lesson(lesson: Lesson, html: Path | None, notebook: Path | None) -> None:
    """Write the lesson's page and notebook, each unless it is None."""
    check_outputs(html=html, notebook=notebook)
    if notebook is not None:
        from ..site.notebook import notebook as text_of_notebook

        copied = None if lesson.file.is_relative_to(LESSONS) else lesson.file.parent
        with replacement(notebook) as part:
            part.write_text(text_of_notebook(lesson.file, copied), encoding="utf-8")
        print(
            f"lesson {lesson.number} is in\n{notebook}\nwhich any Jupyter opens where minigrad is installed"
        )
    if html is not None:
        check_drawing()
        from ..site.single_page import single_page

        print(f"running lesson {lesson.number}{lesson.run_time}", flush=True)
        page = single_page(lesson)
        with replacement(html) as part:
            part.write_text(page, encoding="utf-8")
        print(f"its page, with output and pictures, is in\n{html}")


def check_answers(lesson: Lesson, file: Path | None) -> int:
    """Print what is to be said of each answer; returns 0 if all questions are answered."""
    folder = lesson.file.parent
    if file is not None and not file.is_file():
        raise ValueError(f"there is no file {file}; copy {folder / QUESTIONS} and answer in it")
    file = file or own_copy(folder / QUESTIONS)
    verdicts = check_questions(folder, file)
    console = Console()
    for verdict in verdicts:
        mark = "[green]right[/]" if verdict.answered else "[yellow]open[/] "
        console.print(f"{verdict.number}. {mark} {escape(verdict.text)}", highlight=False)
    right = sum(verdict.answered for verdict in verdicts)
    console.print(f"{right} of {len(verdicts)} answered in {file}", highlight=False, soft_wrap=True)
    note_answers(lesson.number, right, len(verdicts))
    if right < len(verdicts):
        first = next(verdict.number for verdict in verdicts if not verdict.answered)
        to_answer(lesson, file, f"after question {first} is answered in that file").show(console)
        return 1
    if (following := after(lesson)) is not None:
        following.show(console)
    return 0
