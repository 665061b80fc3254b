"""The commands ``minigrad lesson``, ``grade`` and others, which the command line finds by entry points."""

from __future__ import annotations

import ast
import csv
import errno
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from backends.cli.console import print_paths
from backends.cli.curves import check_drawing
from backends.cli.doctor import Finding
from backends.cli.next_command import NextCommand
from backends.cli.run_folder import check_writable
from backends.launch.launch import TRANSPORTS, cores
from backends.launch.supervise import supervise
from backends.process.launcher import under_mpiexec
from backends.process.signals import Interrupted
from minigrad.lookup import check_choice

from . import INSTALLED, LESSONS
from .progress import FILE as PROGRESS
from .progress import Progress, note_answers, note_lesson, note_points
from .repository import repository
from .wrapped_lines import wrapped

if TYPE_CHECKING:
    from .grading.assignment import Assignment
    from .grading.grade import Report, TaskResult

COPIED = ("[0-9]*_*", "assignments")
MAX_REASON = 200  # characters of the reason on the screen; the table of a class has all of it


@dataclass(frozen=True)
class Lesson:
    """A lesson as its docstring presents it."""

    number: str
    title: str
    section: str
    file: Path

    @classmethod
    def read(cls, file: Path) -> Lesson:
        text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
        title = text.partition("\n")[0].removeprefix("Lesson ").partition(". ")[2]
        section = text.partition("Lecture section: ")[2].partition(".")[0].replace("\n", " ")
        return cls(file.parent.name.partition("_")[0], title.rstrip("."), section, file)


def lessons(folder: Path = LESSONS) -> list[Lesson]:
    """All lessons, in order; raises RuntimeError where the lessons are not installed."""
    files = sorted(folder.glob("[0-9]*/lesson.py"))
    if not files:
        raise RuntimeError(f"there are no lessons in {folder}; install minigrad-course again")
    return [Lesson.read(file) for file in files]


def copy_lessons(folder: Path) -> None:
    """Copy the lessons and assignments, without answers, to a new or empty ``folder``; else ValueError."""
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise ValueError(f"--copy needs a new or empty folder, and {folder} is not; name another one")
    for source in (path for pattern in COPIED for path in LESSONS.glob(pattern)):
        ignored = shutil.ignore_patterns("answers.py", "instructor.md", "__pycache__", "runs")
        shutil.copytree(source, folder / source.name, ignore=ignored)


def own_copy(file: Path) -> Path:
    """The student's copy of ``file`` where the current folder is one that ``--copy`` made, else ``file``."""
    if not file.is_relative_to(LESSONS):
        return file
    copy = file.relative_to(LESSONS)
    return copy if copy.exists() else file


def own_starter(file: Path) -> Path:
    """The student's copy of a starter; raises ValueError where the only one is that of the installation."""
    copy = own_copy(file)
    if INSTALLED and copy.is_relative_to(LESSONS):
        raise ValueError(
            f"there is no {file.relative_to(LESSONS)} in this folder, and the installed one is nobody's "
            f"submission; name your file, or write a copy of the course with: minigrad lesson --copy DIR"
        )
    return copy


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
    """List the lessons with their lecture sections, or run one, which draws its figures in runs/lessons/.

    In a folder that --copy made it runs and checks the copy.
    """
    known = lessons()
    if copy is not None:
        copy_lessons(copy)
        print(f"the lessons and assignments are in {copy}, where the commands run your copy")
        NextCommand(f"cd {shlex.quote(str(copy))} && minigrad lesson 01", "the first one").show(Console())
        return
    console = Console()
    if number is None:
        progress = Progress.read()
        table = Table("lesson", "title", "lecture section", "done", title="run one with: minigrad lesson 06")
        for one in known:
            table.add_row(one.number, one.title, one.section, progress.of_lesson(one.number))
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
    check_folder(Path("runs", "lessons"))
    script = own_copy(chosen.file)
    print(f"lesson {chosen.number}; the file to read beside it:\n{script}\n", flush=True)
    try:
        shown = partial(wrapped, width=console.width) if console.is_terminal else iter
        variables = {"PYTHONIOENCODING": ":replace", **os.environ}  # a locale without a character prints ?
        status = supervise([sys.executable, str(script)], variables, shown=shown)
    except Interrupted as error:
        raise Interrupted(error.number, "the figures that it has drawn are in runs/lessons/") from None
    if status == 0:
        note_lesson(chosen.number)
        print_paths(console, questions=own_copy(chosen.file.with_name("questions.py")))
        command = f"minigrad lesson {chosen.number} --check"
        NextCommand(command, "first predict: a letter for each question in that file").show(console)
    sys.exit(status)


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
    check_writable(html, "--html")
    check_writable(notebook, "--notebook")
    if notebook is not None:
        from .site.notebook import notebook as text_of_notebook

        copied = None if lesson.file.is_relative_to(LESSONS) else lesson.file.parent
        notebook.write_text(text_of_notebook(lesson.file, copied), encoding="utf-8")
        print(
            f"lesson {lesson.number} is in\n{notebook}\nwhich any Jupyter opens where minigrad is installed"
        )
    if html is not None:
        check_drawing()
        from .site.single_page import single_page

        print(f"running lesson {lesson.number}", flush=True)
        html.write_text(single_page(lesson), encoding="utf-8")
        print(f"its page, with output and pictures, is in\n{html}")


def site(
    action: Annotated[str, typer.Argument(help="what to do: build", metavar="build")],
    folder: Annotated[
        Path, typer.Argument(help="a new folder, or one with an earlier site", metavar="DIR")
    ] = Path("runs/site"),
    records: Annotated[
        Path, typer.Option(help="folder of what the lessons printed and drew", metavar="DIR")
    ] = Path("runs/records"),
) -> None:
    """Write the course as web pages, to be opened as files: no server and no network are needed.

    Each lesson is run once, in a few minutes for all; a later build runs only those whose sources changed.
    """
    check_choice("action", action, {"build": site})
    under_mpiexec()
    check_drawing()
    from .site.build import build

    try:
        with repository() as root:
            pages = build(folder, records, lambda step: print(step, flush=True), root)
    except Interrupted as error:
        text = f"the lessons that were run are in {records}, and the next build goes on from there"
        raise Interrupted(error.number, text) from None
    print(f"{len(pages)} pages; open\n{folder / 'index.html'}")
    NextCommand("minigrad lesson 01", "the first lesson, here").show(Console())


def check_folder(folder: Path) -> None:
    """Make the folder in which lessons draw; raises OSError where nothing can be written into it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise OSError(
            f"cannot write into {folder.absolute()}: {error.strerror}; lessons draw there: run it in a "
            "folder that you may write"
        ) from None


def check_answers(lesson: Lesson, file: Path | None) -> int:
    """Print what is to be said of each answer; returns 0 if all questions are answered."""
    from .questions import QUESTIONS
    from .questions import check as check_questions

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
        return 1
    if (following := after(lesson)) is not None:
        following.show(console)
    return 0


def experiment(
    name: Annotated[
        str | None, typer.Argument(help="which one, as speedup (default: list all)", metavar="NAME")
    ] = None,
) -> None:
    """List the experiments, or run one on two MPI processes; result and picture go to runs/experiments/."""
    check_drawing()
    from .experiments.experiments import EXPERIMENTS

    if name is None:
        table = Table("experiment", "what it measures", title="run one with: minigrad experiment speedup")
        for one in EXPERIMENTS.values():
            table.add_row(one.name, one.title)
        Console().print(table)
        after_experiment(None, list(EXPERIMENTS)).show(Console())
        return
    check_choice("experiment", name, EXPERIMENTS)
    status = EXPERIMENTS[name]().start()
    if status == 0:
        after_experiment(name, list(EXPERIMENTS)).show(Console())
    sys.exit(status)


def after_experiment(name: str | None, names: list[str]) -> NextCommand:
    """The experiment after this one; of the last one, the lessons."""
    place = 0 if name is None else names.index(name) + 1
    if place < len(names):
        return NextCommand(f"minigrad experiment {names[place]}", "it runs on two MPI processes")
    return NextCommand("minigrad lesson", "all lessons, with what you have done")


def grade(
    assignment: Annotated[str | None, typer.Argument(help="which one, as a2", metavar="NAME")] = None,
    path: Annotated[
        Path | None,
        typer.Argument(
            help="the file to grade, or a folder of files (default: the starter in a copy of the course)",
            metavar="PATH",
        ),
    ] = None,
    submission: Annotated[
        Path | None, typer.Option(help="the file to grade, as the second argument", metavar="PATH")
    ] = None,
    task: Annotated[str | None, typer.Option(help="grade this task alone", metavar="NAME")] = None,
    seed: Annotated[
        int | None,
        typer.Option(min=0, help="random seed of the cases (default: 0, public)", metavar="N"),
    ] = None,
    course: Annotated[
        Path | None, typer.Option(help="a course's seeds and points, in TOML", metavar="FILE")
    ] = None,
    transport: Annotated[str, typer.Option(help="threads or mpi: how ranks run", metavar="NAME")] = "threads",
    json: Annotated[Path | None, typer.Option(help="also write the report here", metavar="FILE")] = None,
    gradescope: Annotated[
        Path | None, typer.Option(help="also write Gradescope's results.json", metavar="FILE")
    ] = None,
    junit: Annotated[Path | None, typer.Option(help="also write JUnit's XML", metavar="FILE")] = None,
    csv: Annotated[
        Path | None, typer.Option(help="of a folder: also write a line for each file", metavar="FILE")
    ] = None,
    jobs: Annotated[
        int, typer.Option(min=1, help="of a folder: how many files are graded at a time", metavar="N")
    ] = min(2, cores()),
    answers: Annotated[
        bool, typer.Option("--answers", help="grade the library's own answers", metavar="")
    ] = False,
    seconds: Annotated[float, typer.Option(min=1, help="time limit of a task", metavar="SECONDS")] = 60,
    folder: Annotated[
        Path | None,
        typer.Option(help="folder of the assignments (default: lessons/assignments)", metavar="PATH"),
    ] = None,
    list_tasks: Annotated[
        bool, typer.Option("--list", help="list the assignments, or the tasks of one", metavar="")
    ] = False,
) -> None:
    """Grade a submission, or a folder of them: points per task, and the smallest wrong case.

    Status 0: all points; of a folder: all files were graded.
    """
    try:
        from .grading.assignment import FOLDER, find_assignment, find_assignments
        from .grading.course import Course
        from .grading.grade import SubmissionFile
        from .grading.grade import grade as grade_submission
        from .grading.reports import as_text, assignment_table, result_table
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "hypothesis":
            raise
        raise RuntimeError(
            "minigrad grade needs Hypothesis, which draws the cases; pip install hypothesis"
        ) from None
    console = Console()
    folder = folder or FOLDER
    settings = Course() if course is None else Course.read(course, folder)
    if list_tasks or assignment is None:
        chosen = [find_assignment(assignment, folder)] if assignment else find_assignments(folder)
        progress = Progress.read()
        console.print(assignment_table([settings.weighted(one) for one in chosen], progress))
        after_assignments([one.name for one in chosen], progress).show(console)
        return
    if course is not None and seed is not None:
        raise ValueError(f"both --seed and {course} set the seed; leave --seed out")
    check_choice("--transport", transport, TRANSPORTS)
    if transport == "mpi" and under_mpiexec():
        raise RuntimeError("minigrad grade starts ranks of its own; leave mpiexec or srun out")
    if path is not None and submission is not None:
        raise ValueError(f"both {path} and {submission} are to be graded; leave --submission out")
    submission = path or submission
    if answers and submission is not None:
        raise ValueError("--answers grades the library's own file; leave --submission out")
    files = {"json": json, "gradescope": gradescope, "junit": junit}
    for kind, file in {**files, "csv": csv}.items():
        check_writable(file, f"--{kind}")
    work = settings.weighted(find_assignment(assignment, folder))
    seed = settings.seed_of(work) if seed is None else seed
    if task is not None:
        work = work.only(task)
    if answers and not work.answers.is_file():
        raise ValueError(f"there is no {work.answers}; the repository has it, and a handout does not")
    if submission is not None and submission.is_dir():
        for kind, file in files.items():
            if file is not None:
                raise ValueError(f"--{kind} reports one submission; of a folder, --csv reports all")
        limits = {"seed": seed, "transport": transport, "task_seconds": seconds}
        sys.exit(grade_folder(work, submission, csv, jobs, **limits))
    if csv is not None:
        raise ValueError("--csv reports a folder of submissions; of one file, --json reports it")
    source = SubmissionFile.read(submission or (work.answers if answers else own_starter(work.starter)))
    console.print(f"grading {source.file}\nSHA-256 {source.digest}", highlight=False, soft_wrap=True)

    def print_result(result: TaskResult) -> None:
        points = f"{result.score:3} of {result.task.points:3} points"
        console.print(f"{points}  {result.task.name}  ({result.seconds:.1f} s)", highlight=False)

    report = grade_submission(
        work,
        source,
        seed=seed,
        transport=transport,
        answers=answers,
        task_seconds=seconds,
        on_result=print_result,
    )
    console.print(result_table(report))
    if not answers:
        note_points(work.name, report.score, work.points)
    for kind, file in files.items():
        if file is not None:
            file.write_text(as_text(report, kind), encoding="utf-8")
    if not answers:
        print_paths(console, text=own_copy(work.folder / "README.md"))
        after_grading(report, submission, find_assignments(folder)).show(console)
    else:
        NextCommand("minigrad handout students", "the tree for students, without answers").show(console)
    sys.exit(0 if report.score == work.points else 1)


def after_grading(report: Report, submission: Path | None, assignments: list[Assignment]) -> NextCommand:
    """Grading again once the first wrong task is mended, or the assignment after a finished one."""
    work = report.assignment
    if task := next((result.task for result in report.results if not result.passed), None):
        command = grade_command(work, *([] if submission is None else [str(submission)]))
        return NextCommand(command, f"after {task.name} is mended")
    following = next((other for other in assignments if other.name > work.name), None)
    if following is None:
        return NextCommand("minigrad grade --list", "all assignments, with your points")
    return NextCommand(grade_command(following), "the assignment after it")


def grade_command(assignment: Assignment, *words: str) -> str:
    """The command that grades an assignment, with its folder where that is not the course's."""
    from .grading.assignment import FOLDER

    own = [] if assignment.folder.parent == FOLDER else ["--folder", str(assignment.folder.parent)]
    return shlex.join(["minigrad", "grade", assignment.name.partition("_")[0], *words, *own])


def after_assignments(names: list[str], progress: Progress) -> NextCommand:
    """The first of them that does not have all points; where all have, the lessons."""
    open_ones = [name for name in names if len({*progress.points.get(name, (0, 1))}) > 1]
    if not open_ones:
        return NextCommand("minigrad lesson", "all lessons, with what you have done")
    return NextCommand(f"minigrad grade {open_ones[0].partition('_')[0]}", "the first one without all points")


def grade_folder(assignment: Assignment, folder: Path, table: Path | None, jobs: int, **settings: Any) -> int:
    """Grade all files of the folder, and write each into ``table`` at once; returns 0 if all were graded."""
    from .grading.counterexample import shorten
    from .grading.folder import Entry, find_submissions, grade_file, grade_files, header, summary

    files = find_submissions(folder)
    entries: list[Entry] = []
    console = Console(highlight=False, markup=False, soft_wrap=True)
    with nullcontext() if table is None else table.open("w", newline="", encoding="utf-8") as stream:
        lines = None if stream is None else csv.writer(stream)
        if stream is not None and lines is not None:
            lines.writerow(header(assignment))
        try:
            for entry in grade_files(files, jobs, partial(grade_file, assignment, **settings)):
                entries.append(entry)
                points = "not graded" if entry.report is None else f"{entry.report.score:3} points"
                console.print(f"{points}  {entry.name}  {shorten(entry.reason, MAX_REASON)}".rstrip())
                if stream is not None and lines is not None:
                    lines.writerow(entry.cells(assignment))
                    stream.flush()
        except Interrupted as error:
            saved = f"{len(entries)} of {len(files)} submissions are in {table or 'the lines above'}"
            raise Interrupted(error.number, saved) from None
    console.print("\n".join(["", *summary(assignment, entries)]))
    lowest = min(entries, key=lambda entry: -1 if entry.report is None else entry.report.score)
    command = grade_command(assignment, str(lowest.file))
    NextCommand(command, "the lowest, with the smallest wrong case of each task").show(console)
    return 0 if all(entry.report is not None for entry in entries) else 1


def handout(
    folder: Annotated[Path, typer.Argument(help="a new or empty folder", metavar="DIR")],
) -> None:
    """Write the tree for students: library, lessons and assignments, without their answers."""
    from .handout import write_handout

    with repository() as root:
        count = write_handout(folder, root)
    print(f"{count} files in {folder}; students run pip install -e . in it")
    NextCommand("minigrad autograder a1 --gradescope a1.zip", "what grades them at Gradescope").show(
        Console()
    )


def grading() -> Iterator[Finding]:
    """The row of ``minigrad doctor`` about what protects this machine from a submission."""
    from .grading.sandbox import protections

    names = protections()
    remedies = {
        "seccomp": "pip install pyseccomp, and libseccomp2 of your system",
        "namespaces": "allow user namespaces (unshare, of util-linux)",
    }
    missing = [remedy for name, remedy in remedies.items() if name not in names]
    advice = f"{'; '.join(missing)}; or grade strangers in a container" if missing else ""
    yield Finding("grading", ", ".join(names), advice)
