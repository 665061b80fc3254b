"""The judge of one task, in a process that never loads the submission.

``python -m minigrad_course.grading.judge FOLDER`` starts it. FOLDER holds ``request.RANK``, which the judge
reads and
removes before it starts a worker. It writes its verdict so far to ``verdict.RANK``, line by line, each line
signed with a secret that only the grader knows. Cases, seed, correct results and comparisons stay here; a
worker only receives arguments and returns results.
"""

from __future__ import annotations

import ast
import json
import os
import re
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from backends.launch.launch import load_mpi
from backends.process.launcher import launcher

from .assignment import ANSWERS, Task, load_file
from .counterexample import counterexample, describe_failure, draw_cases
from .starter_imports import StarterImports
from .submission import Submission, WorkerPool
from .worker.sandbox import set_limits

if TYPE_CHECKING:
    from backends.comm.mpi import MPIComm

MPI_RANKS, MPI_CASES = 3, 5
MPI_TIMEOUT = 4  # seconds that a rank waits for another within a case
NEXT_CASE = "for the next case"  # ranks that this case does not use wait for this
MAX_FILE = 16  # mebibytes of output, and of the verdict
GRACE = 0.5  # seconds in which another rank may write its verdict, before the job ends
CASE_SECONDS = 20.0  # a case that lasts longer is taken never to end


@dataclass(frozen=True)
class Request:
    """The work of one judge; ``source`` is the submission's text, ``file`` its name.

    ``part`` is the number of the task's part to judge, None for the whole task.
    """

    secret: str
    assignment: str
    task: str
    source: str
    file: str
    starter: str
    seed: int
    transport: str
    seconds: float
    mebibytes: int
    answers: bool
    part: int | None = None

    def write(self, file: Path) -> None:
        file.write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, file: Path) -> Request:
        request = cls(**json.loads(file.read_text(encoding="utf-8")))
        file.unlink()
        return request


def main(folder: Path) -> NoReturn:
    """Read the request, then judge the submission; never returns, whatever the submission left behind."""
    here = launcher()
    rank = here.rank if here else 0
    request = Request.read(folder / f"request.{rank}")
    output = os.open(folder / f"output.{rank}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(output, 1)
    os.dup2(output, 2)
    set_limits(request.mebibytes, request.seconds, MAX_FILE)
    judge(request, *verdict_writers(folder / f"verdict.{rank}", request))


def sign(line: str, secret: str) -> str:
    """The line's signature, which takes the secret to compute and does not reveal it."""
    return blake2b(line.encode(), key=secret.encode(), digest_size=16).hexdigest()


Write = Callable[[str, str], None]
End = Callable[..., NoReturn]


def verdict_writers(file: Path, request: Request) -> tuple[Write, End]:
    """Functions that write a line of the verdict, and the last line, with which this process ends."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(kind: str, text: str) -> None:
        line = f"{kind} {json.dumps(text)}"
        os.write(descriptor, f"{sign(line, request.secret)} {line}\n".encode())

    def end(kind: str, text: str, last: Callable[[], None] = lambda: None) -> NoReturn:
        write(kind, text)
        last()
        if request.transport == "mpi":
            time.sleep(GRACE)
        os._exit(1)

    return write, end


class Timer:
    """The time that a task has, ``seconds``, and that each of its cases has.

    When it is up, ``timeout`` is called with a text about it and about the ``lines`` that are running.
    """

    def __init__(self, seconds: float, lines: Callable[[], list[str]], timeout: Callable[[str], object]):
        self.seconds, self.lines, self.timeout = seconds, lines, timeout
        self.end = time.monotonic() + seconds
        self.start_case()
        threading.Thread(target=self.watch, name="watch", daemon=True).start()

    def start_case(self) -> None:
        self.case_end = time.monotonic() + CASE_SECONDS

    def watch(self) -> None:
        while (left := min(self.end, self.case_end) - time.monotonic()) > 0:
            time.sleep(min(left, 0.2))
        limit = CASE_SECONDS if self.case_end < self.end else self.seconds
        self.timeout(": ".join([f"did not end in {limit:.0f} s", *filter(None, ["; ".join(self.lines())])]))


def judge(request: Request, write: Write, end: End) -> NoReturn:
    """Write the verdict of the task; ``passed`` where the search finds no case that breaks the law."""
    folder = Path(request.assignment)
    task: Task = next(t for t in load_file(folder / "tasks.py", "tasks").TASKS if t.name == request.task)
    part = None if request.part is None else task.parts[request.part]
    task = task.under(part)
    supplied = {}
    if part is not None and part.supplied:
        answers = load_file(folder / ANSWERS, "answers")
        supplied = {name: getattr(answers, name) for name in part.supplied}

    tried: list[Any] = []  # the case that is tried, or that has failed

    def on_case(case: Any) -> None:
        timer.start_case()
        write("case", str(case))
        tried[:] = [case]

    def on_failure(case: Any) -> None:
        tried[:] = [case]

    search: Search = partial(
        counterexample, task, seed_of_cases=request.seed, on_case=on_case, on_failure=on_failure
    )
    finish = None
    if request.transport == "mpi":
        search, finish = search_over_mpi(task, request.seed, on_case)
    if counterexample(task, task.broken, request.seed, shrink=False) is None:
        end(
            "internal", "its own wrong answer passes with this seed; take another, and tell the task's author"
        )
    try:
        imports = StarterImports.read(request.starter)
        imports = imports.for_answers(request.source) if request.answers else imports
    except ValueError as error:
        end("internal", f"{error}; tell the task's author")
    workers = WorkerPool(request.mebibytes // 2, request.seconds, imports, trusted=request.answers)

    def close(kind: str, text: str) -> NoReturn:
        for number, part in enumerate(task.parts):
            if tried and (part.supplied or not part.where(tried[0])):
                write("part", str(number))  # this failure leaves it open whether the part is right
        end(kind, text, workers.close)  # the first line counts: ranks whose workers end would write another

    lines = partial(workers.current_lines, request.file)
    timer = Timer(request.seconds, lines, partial(close, "late"))
    try:
        required = set() if request.answers else definitions(request.starter)
        submission = Submission(workers, request.source, request.file, required, supplied)
    except BaseException as error:
        close("failed", f"loading it: {describe_failure(error, file=request.file)}")
    try:
        problem = search(submission)
    except TimeoutError as error:  # of ranks that are processes: they wait for each other
        close("waited", re.sub(", since [0-9:]+,", "", str(error).partition(";")[0]))
    except BaseException as error:
        traceback.print_exc()
        close("internal", f"{type(error).__name__} in the judge itself; tell the task's author")
    if problem is not None:
        close("failed", problem)
    workers.close()
    write("passed", "")
    if finish is not None:
        finish()
    os._exit(0)


def definitions(source: str) -> set[str]:
    """The functions and classes at the top of a program."""
    return {node.name for node in ast.parse(source).body if isinstance(node, ast.FunctionDef | ast.ClassDef)}


Search = Callable[[Any], str | None]


def search_over_mpi(
    task: Task, seed: int, on_case: Callable[[Any], None]
) -> tuple[Search, Callable[[], None]]:
    """The checks on a few cases, where each rank is a process and this is one; and how to end the search.

    A failure of one rank ends the job. The other ranks report what they wait for by then.
    """
    world = load_mpi()()
    cases = draw_cases(task, seed, MPI_RANKS, MPI_CASES)

    def search(submission: Any) -> str | None:
        world.barrier_with("for all ranks to load the submission")
        before, os.environ["MINIGRAD_TIMEOUT"] = os.environ["MINIGRAD_TIMEOUT"], str(MPI_TIMEOUT)
        for case in cases:
            on_case(case)
            comm = world.split(int(world.rank >= case.ranks))
            if world.rank < case.ranks and (problem := check_on_rank(task, submission, case, comm)):
                return f"{case}: {problem}"
            world.barrier_with(NEXT_CASE)
        os.environ["MINIGRAD_TIMEOUT"] = before
        return None

    return search, lambda: world.barrier_with("for all ranks to pass")


def check_on_rank(task: Task, submission: Any, case: Any, comm: MPIComm) -> str | None:
    """The mistake in this case on this rank; None where the law holds."""
    try:
        task.check(submission, case, comm)
        comm.close()
    except TimeoutError:
        raise
    except BaseException as error:
        return describe_failure(error, comm.rank, submission.__file__)
    return None


if __name__ == "__main__":
    main(Path(sys.argv[1]))
