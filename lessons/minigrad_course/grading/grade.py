"""Grades a submission: a judge process for every task, and the points together."""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from backends.launch.launch import THREAD_VARIABLES, environment, find_mpiexec, mpi_problem
from backends.launch.supervise import supervised

from .assignment import ANSWERS, Assignment, Part, Task
from .judge import MPI_RANKS, NEXT_CASE, Request, sign
from .sandbox import describe_exit
from .static_check import check_in_process

TASK_SECONDS = 60.0
TOTAL_SECONDS = 480.0  # for the whole submission
MEBIBYTES = 448  # of a task's data; the program's text takes a tenth of that beside it
START_SECONDS = 20.0  # beyond a task's own, for Python to start on a busy core
MAX_OUTPUT = 2000  # characters of a task's output in the report

REFUSED = "was not tried: nothing of the file was run"
OUT_OF_TIME = "was not tried: the tasks before it took all the time there is"


@dataclass(frozen=True)
class SubmissionFile:
    """The text of a submission, read once: every task runs this text, whatever happens to the file.

    ``digest`` is the SHA-256 of the file.
    """

    file: Path
    source: str
    digest: str

    @classmethod
    def read(cls, file: Path) -> SubmissionFile:
        """Raises ValueError where there is no file, or no text in it."""
        if not file.is_file():
            raise ValueError(f"there is no file {file}; --submission takes the path of your submission.py")
        content = file.read_bytes()
        try:
            source = content.decode("utf-8-sig")  # some editors begin a file with a mark
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{file} is no Python program in UTF-8 (byte {error.start}); save it as UTF-8"
            ) from None
        return cls(file.resolve(), source, hashlib.sha256(content).hexdigest())


def check_inside(folder: Path, file: Path) -> None:
    """Raise ValueError for a link that leads out of the folder: it may be to anybody's file."""
    if not file.resolve().is_relative_to(folder.resolve()):
        raise ValueError(f"{file.name} is a link that leads out of its folder; put the file itself there")


@dataclass(frozen=True)
class TaskResult:
    """A task, and of a failed one the best of its parts that was right.

    ``message`` describes the mistake, ``output`` is the end of what was printed. ``open_parts`` are the
    numbers of the parts that may be right although the task failed.
    """

    task: Task
    passed: bool
    message: str
    output: str = ""
    seconds: float = 0.0
    part: Part | None = None
    open_parts: tuple[int, ...] = ()

    @property
    def share(self) -> float:
        """The share of the task's points; 1 too where the mistake is in another task's function."""
        return 1.0 if self.passed else 0.0 if self.part is None else self.part.share

    @property
    def score(self) -> int:
        return int(self.share * self.task.points + 0.5)


@dataclass(frozen=True)
class Report:
    """The results of a submission; ``refused`` is the reason why nothing of it was run, or empty."""

    assignment: Assignment
    submission: SubmissionFile
    seed: int
    transport: str
    results: tuple[TaskResult, ...]
    seconds: float
    refused: str = ""

    @property
    def score(self) -> int:
        return sum(result.score for result in self.results)


def grade(
    assignment: Assignment,
    submission: SubmissionFile,
    *,
    seed: int = 0,
    transport: str = "threads",
    answers: bool = False,
    task_seconds: float = TASK_SECONDS,
    total_seconds: float = TOTAL_SECONDS,
    mebibytes: int = MEBIBYTES,
    on_result: Callable[[TaskResult], None] = lambda result: None,
) -> Report:
    """Grade every task in a process of its own; ``on_result`` is called after each.

    With ``answers`` the file may import the library's answers, which are then graded.
    """
    if transport == "mpi" and (problem := mpi_problem()):
        raise RuntimeError(f"--transport mpi: {problem}")
    start = time.monotonic()
    starter = assignment.starter.read_text(encoding="utf-8")
    refused = "" if answers else printable(check_in_process(submission.source, starter) or "")
    results = [TaskResult(task, False, REFUSED) for task in assignment.tasks if refused]
    for task in assignment.tasks[len(results) :]:
        request = Request(
            secret=secrets.token_hex(16),
            assignment=str(assignment.folder),
            task=task.name,
            source=submission.source,
            file=str(submission.file),
            starter=starter,
            seed=seed,
            transport=transport,
            seconds=task_seconds,
            mebibytes=mebibytes,
            answers=answers,
        )
        results.append(best_result(task, request, start + total_seconds))
        on_result(results[-1])
    seconds = time.monotonic() - start
    return Report(assignment, submission, seed, transport, tuple(results), seconds, refused)


def best_result(task: Task, request: Request, end: float) -> TaskResult:
    """The task's result before the time ``end``; of a failed one with the largest part that is right."""
    if (left := end - time.monotonic()) <= 1:
        return TaskResult(task, False, OUT_OF_TIME)
    result = run_judge(task, replace(request, seconds=min(request.seconds, left)))
    if result.passed:
        return result
    parts = [(number, task.parts[number]) for number in result.open_parts]
    for number, part in sorted(parts, key=lambda item: -item[1].share):
        if part.supplied and not (Path(request.assignment) / ANSWERS).is_file():
            continue  # a handout has no answers to supply
        if (left := end - time.monotonic()) <= 1:
            break
        if run_judge(task, replace(request, part=number, seconds=min(request.seconds, left))).passed:
            return replace(result, part=part)
    return result


# The judge's process


def run_judge(task: Task, request: Request) -> TaskResult:
    """Judge one task in separate processes, in an empty folder, and remove all that they leave."""
    start = time.monotonic()
    ranks = MPI_RANKS if request.transport == "mpi" else 1
    if ranks > 1:  # three such halves fit where one whole does
        request = replace(request, mebibytes=request.mebibytes // 2)
    with tempfile.TemporaryDirectory(prefix="minigrad-grade-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        for rank in range(ranks):
            request.write(folder / f"request.{rank}")
        status = run(folder, request)
        verdicts = [read_verdict(folder / f"verdict.{rank}", request.secret) for rank in range(ranks)]
        passed, message = combine(verdicts, status, request.seconds)
        output = "\n".join(filter(None, (end_of_output(folder / f"output.{rank}") for rank in range(ranks))))
    parts = sorted({int(text) for lines in verdicts for kind, text in lines if kind == "part"})
    return TaskResult(
        task, passed, printable(message), printable(output), time.monotonic() - start, open_parts=tuple(parts)
    )


def run(folder: Path, request: Request) -> int | None:
    """Run the judge in an empty folder inside ``folder``; its exit status, None where its time ran out."""
    work = folder / "work"
    work.mkdir()
    judge = ["-m", "minigrad_course.grading.judge", str(folder)]
    command = [sys.executable, *judge]
    if request.transport == "mpi":
        command = [str(find_mpiexec()), "-n", str(MPI_RANKS), sys.executable, "-m", "mpi4py", *judge]
    variables = {
        **environment(MPI_RANKS),
        **dict.fromkeys(THREAD_VARIABLES, "1"),
        **dict.fromkeys(("HYPOTHESIS_STORAGE_DIRECTORY", "TMPDIR", "HOME", "MPLCONFIGDIR"), str(work)),
        "MINIGRAD_TIMEOUT": "60",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        "MPLBACKEND": "Agg",
    }
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    with supervised(command, variables, str(folder), cwd=work, **streams) as job:
        try:
            return job.process.wait(request.seconds + START_SECONDS)
        except subprocess.TimeoutExpired:
            return None
        finally:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(job.process.pid, signal.SIGKILL)  # processes that it left in its own session


Lines = list[tuple[str, str]]


def read_verdict(file: Path, secret: str) -> Lines:
    """Kind and text of each line that a rank's judge wrote: those that are signed with the secret."""
    if not file.exists():
        return []
    lines = [line.partition(" ") for line in file.read_text(encoding="utf-8", errors="replace").split("\n")]
    signed = [line.split(" ", 1) for signature, _, line in lines if signature == sign(line, secret)]
    # Python's own parser fails now and then where several threads use it (gh-106905), as they grade a class.
    return [(kind, json.loads(text)) for kind, text in signed]


def combine(ranks: list[Lines], status: int | None, seconds: float) -> tuple[bool, str]:
    """Whether the task passed, and else the reason, from the verdicts of all ranks and the exit status."""
    ends = [[line for line in lines if line[0] not in ("case", "part")] for lines in ranks]
    if all(end == [("passed", "")] for end in ends):
        return True, ""
    problems = [(kind, text) for end in ends for kind, text in end if kind != "passed"]
    cases = [text for lines in ranks for kind, text in lines if kind == "case"]
    where = f"{cases[-1]}: " if cases else ""
    if problems:
        kind, text = min(problems, key=lambda problem: problem[0] == "waited")
        if kind == "waited":  # each rank says for which other it waits: together they are the circle
            waits = [f"\n  {text}" for _, text in problems if NEXT_CASE not in text]
            return False, f"{where}no rank can go on{''.join(waits)}"
        return False, {"late": f"{where}{text}", "internal": f"the grader: {text}"}.get(kind, text)
    if any(end for end in ends if end != [("passed", "")]):
        return False, "more than one verdict was written: not by the grader alone"
    return False, f"{where}{describe_exit(status, seconds)}"


def printable(text: str) -> str:
    """The text with ``?`` for the characters that control terminals, reverse the order of letters, or cannot
    stand in XML and databases.
    """
    text = re.sub("[\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]", "?", text)
    return re.sub("[^\t\n\r\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "?", text)


def end_of_output(file: Path) -> str:
    """The end of a rank's output."""
    if not file.exists():
        return ""
    with file.open("rb") as stream:
        stream.seek(max(0, file.stat().st_size - 4 * MAX_OUTPUT))
        lines = stream.read().decode(errors="replace").strip().splitlines()
    text = "\n".join(line for line in lines if not line.startswith("minigrad: rank"))  # it is in the message
    return text if len(text) <= MAX_OUTPUT else f"... {text[-MAX_OUTPUT + 4 :]}"
