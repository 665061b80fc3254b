"""``minigrad grade``: grades a submission, or a folder of them."""

from __future__ import annotations

import csv
import os
import shlex
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from backends.cli.console import print_paths
from backends.cli.doctor import Finding
from backends.cli.next_command import NextCommand
from backends.cli.run_folder import check_outputs
from backends.launch.launch import TRANSPORTS, cores
from backends.process.launcher import under_mpiexec
from backends.process.signals import Interrupted
from backends.words import counted
from minigrad.files import replacement
from minigrad.lookup import check_choice

from ..lesson.lessons import own_copy, own_starter
from ..lesson.progress import Progress, note_points
from .assignment import FOLDER, Assignment, find_assignment, find_assignments
from .sandbox import protections

if TYPE_CHECKING:
    from .folder import Entry
    from .grade import Report, TaskResult

CourseFile = Annotated[Path | None, typer.Option(help="a course's seeds and points, in TOML", metavar="FILE")]
AssignmentFolder = Annotated[
    Path | None, typer.Option(help="folder of the assignments (default: lessons/assignments)", metavar="PATH")
]
MAX_REASON = 200  # characters of the reason on the screen; the table of a class has all of it


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
        int | None, typer.Option(min=0, help="random seed of the cases (default: 0, public)", metavar="N")
    ] = None,
    course: CourseFile = None,
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
    folder: AssignmentFolder = None,
    list_tasks: Annotated[
        bool, typer.Option("--list", help="list the assignments, or the tasks of one", metavar="")
    ] = False,
) -> None:
    """Grade a submission, or a folder of them: points per task, and the smallest wrong case.

    Status 0: all points; of a folder: all files were graded.
    """
    try:
        from .course import Course
        from .grade import SubmissionFile
        from .grade import grade as grade_submission
        from .reports import as_text, assignment_table, result_table
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "hypothesis":
            raise
        raise RuntimeError(
            "minigrad grade needs Hypothesis, which draws the cases; pip install hypothesis"
        ) from None
    console = Console()
    folder = folder or FOLDER
    settings = Course() if course is None else Course.read(course, folder)
    files = {"json": json, "gradescope": gradescope, "junit": junit}
    if list_tasks or assignment is None:
        for kind, file in {**files, "csv": csv}.items():
            if file is not None:
                graded = "FOLDER" if kind == "csv" else "submission.py"
                raise ValueError(
                    f"--{kind} reports what was graded: minigrad grade a1 {graded} --{kind} FILE"
                )
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
    check_outputs(**files, csv=csv)
    for kind, file in {**files, "csv": csv}.items():
        if file is not None and file.suffix.lower() == ".py":
            raise ValueError(f"--{kind} would write a report over a program, {file}; name another file")
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
        sys.exit(grade_folder(work, submission, csv, jobs, course, **limits))
    if csv is not None:
        raise ValueError("--csv reports a folder of submissions; of one file, --json reports it")
    source = SubmissionFile.read(submission or (work.answers if answers else own_starter(work.starter)))
    console.print(f"grading {source.file}\nSHA-256 {source.digest}", highlight=False, soft_wrap=True)
    console.print(f"a task takes a few seconds, and at most {seconds:g} s", highlight=False)

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
    if not answers and task is None:
        note_points(work.name, report.score, work.points)
    for kind, file in files.items():
        if file is not None:
            with replacement(file) as part:
                part.write_text(as_text(report, kind), encoding="utf-8")
    if not answers:
        print_paths(console, text=own_copy(work.folder / "README.md"))
        after_grading(report, submission, find_assignments(folder), alone=task is not None).show(console)
    else:
        NextCommand("minigrad handout students", "the tree for students, without answers").show(console)
    sys.exit(0 if report.score == work.points else 1)


def after_grading(
    report: Report, submission: Path | None, assignments: list[Assignment], alone: bool = False
) -> NextCommand:
    """Grading again once the first wrong task is mended, or the assignment after a finished one.

    After a task that was graded ``alone`` and is right, all tasks; ``assignments`` are in their order.
    """
    work = report.assignment
    again = grade_command(work, *([] if submission is None else [str(submission)]))
    if task := next((result.task for result in report.results if not result.passed), None):
        return NextCommand(again, f"after {task.name} is mended")
    if alone:
        return NextCommand(again, "all tasks, whose points are kept")
    names = [other.name for other in assignments]
    following = next(iter(assignments[names.index(work.name) + 1 :]), None)
    if following is None:
        return NextCommand("minigrad grade --list", "all assignments, with your points")
    return NextCommand(grade_command(following), "the assignment after it")


def grade_command(assignment: Assignment, *words: str) -> str:
    """The command that grades an assignment, with its folder where that is not the course's."""
    own = [] if assignment.folder.parent == FOLDER else ["--folder", str(assignment.folder.parent)]
    return shlex.join(["minigrad", "grade", assignment.name.partition("_")[0], *words, *own])


def after_assignments(names: list[str], progress: Progress) -> NextCommand:
    """The first of them that does not have all points; where all have, the lessons."""
    open_ones = [name for name in names if len({*progress.points.get(name, (0, 1))}) > 1]
    if not open_ones:
        return NextCommand("minigrad lesson", "all lessons, with what you have done")
    return NextCommand(f"minigrad grade {open_ones[0].partition('_')[0]}", "the first one without all points")


def grade_folder(
    assignment: Assignment, folder: Path, table: Path | None, jobs: int, course: Path | None, **settings: Any
) -> int:
    """Grade all files of the folder, and write each into ``table`` at once; returns 0 if all were graded.

    ``course`` is the course file, which the next command needs, too.
    """
    from .counterexample import shorten
    from .folder import find_submissions, grade_file, grade_files, header, summary

    files = find_submissions(folder)
    entries: list[Entry] = []
    console = Console(highlight=False, markup=False, soft_wrap=True)
    each = f"about 10 s each, where a task hangs up to {settings['task_seconds']:g} s more"
    console.print(f"{counted(len(files), 'submission')}, {jobs} at a time: {each}")
    with Path(table or os.devnull).open("w", newline="", encoding="utf-8") as stream:
        lines = csv.writer(stream)
        lines.writerow(header(assignment))
        try:
            for entry in grade_files(files, jobs, partial(grade_file, assignment, **settings)):
                entries.append(entry)
                points = "not graded" if entry.report is None else f"{entry.report.score:3} points"
                console.print(f"{points}  {entry.name}  {shorten(entry.reason, MAX_REASON)}".rstrip())
                lines.writerow(entry.cells(assignment))
                stream.flush()
        except Interrupted as error:
            saved = f"{len(entries)} of {len(files)} submissions are in {table or 'the lines above'}"
            raise Interrupted(error.number, saved) from None
    console.print("\n".join(["", *summary(assignment, entries)]))
    after_class(assignment, entries, course).show(console)
    return 0 if all(entry.report is not None for entry in entries) else 1


def after_class(assignment: Assignment, entries: list[Entry], course: Path | None) -> NextCommand:
    """Grading the submission with the fewest points alone; where none was graded, its tasks."""
    graded = [(entry.report.score, entry.file) for entry in entries if entry.report is not None]
    if not graded:
        return NextCommand(grade_command(assignment, "--list"), "its tasks")
    words = [str(min(graded)[1]), *([] if course is None else ["--course", str(course)])]
    command = grade_command(assignment, *words)
    return NextCommand(command, "the fewest points, with the smallest wrong case of each task")


def grading() -> Iterator[Finding]:
    """The row of ``minigrad doctor`` about what protects this machine from a submission."""
    names = protections()
    remedies = {
        "seccomp": "pip install pyseccomp, and libseccomp2 of your system",
        "namespaces": "allow user namespaces (unshare, of util-linux)",
    }
    missing = [remedy for name, remedy in remedies.items() if name not in names]
    advice = f"{'; '.join(missing)}; or grade strangers in a container" if missing else ""
    yield Finding("grading", ", ".join(names), advice)
