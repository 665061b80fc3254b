"""One task, judged in a process that never loads the submission: ``python -m backends.grading.judge FOLDER``.

FOLDER holds ``request.RANK``, which is read and removed before a process for the submission is started, and
takes ``verdict.RANK``, what is known so far, line by line, each signed with a word that only the grader
knows. Cases, seed, right results and comparisons are here; the submission's process gets arguments and gives
results.
"""

from __future__ import annotations

import ast
import json
import os
import re
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from ..launch.launch import load_mpi
from ..launch.launcher import rank_under_mpiexec
from .assignment import load_file
from .given import Given
from .limits import Clock, limit
from .players import Players
from .search import counterexample, draw_cases, in_words
from .settings import Settings
from .task import Task

if TYPE_CHECKING:
    from ..comm.mpi import MPIComm

MPI_RANKS, MPI_CASES = 3, 5
MPI_PATIENCE = 4  # seconds that a rank waits for another within a case
NEXT_CASE = "for the next case"  # what ranks wait for that have no part in this one
WRITTEN = 16  # mebibytes of output, and of what is said
GRACE = 0.5  # seconds in which another rank may say what it found, before the job ends


@dataclass(frozen=True)
class Request:
    """What a judge is asked; ``source`` is the submission's text, ``file`` what it is called."""

    word: str
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

    def write(self, file: Path) -> None:
        file.write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, file: Path) -> Request:
        request = cls(**json.loads(file.read_text()))
        file.unlink()
        return request


def main(folder: Path) -> NoReturn:
    """Read what is asked, then see how the submission does; never returns, whatever the submission left."""
    rank = rank_under_mpiexec() or 0
    request = Request.read(folder / f"request.{rank}")
    output = os.open(folder / f"output.{rank}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(output, 1)
    os.dup2(output, 2)
    limit(request.mebibytes, request.seconds, WRITTEN)
    judge(request, *voice(folder / f"verdict.{rank}", request))


def sign(line: str, word: str, code: Callable[..., blake2b] = blake2b) -> str:
    """What only one who knows the word can put before the line: reading other lines does not tell it."""
    return code(line.encode(), key=word.encode(), digest_size=16).hexdigest()


Say = Callable[[str, str], None]
End = Callable[..., NoReturn]


def voice(file: Path, request: Request) -> tuple[Say, End]:
    """How this process says a line, and how it says its last; kept apart from all that can be looked up."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    pid, word, mpi = os.getpid(), request.word, request.transport == "mpi"
    write, getpid, leave, sleep, signed = os.write, os.getpid, os._exit, time.sleep, sign

    def say(kind: str, text: str) -> None:
        if getpid() == pid:  # not a copy of this process
            line = f"{kind} {text!r}"
            write(descriptor, f"{signed(line, word)} {line}\n".encode())

    def end(kind: str, text: str, last: Callable[[], None] = lambda: None) -> NoReturn:
        say(kind, text)
        last()
        if mpi:
            sleep(GRACE)
        leave(1)

    return say, end


def judge(request: Request, say: Say, end: End) -> NoReturn:
    """Say how the submission does in the task.

    ``passed`` is said where no case was found that breaks the law.
    """
    folder = Path(request.assignment)
    task: Task = next(t for t in load_file(folder / "tasks.py", "tasks").TASKS if t.name == request.task)
    clock = Clock(request.seconds)

    def trying(case: str) -> None:
        clock.case_began()
        say("case", case)

    search, finish = (mpi if request.transport == "mpi" else threads)(task, request.seed, trying)
    if not refuses(task, request.seed):
        end("blind", "its own wrong answer passes with this seed; take another, and tell the task's author")
    names = request.source if request.answers else request.starter
    settings = Settings(request.mebibytes // 2, request.seconds, imports(names), list(task.records))
    players = Players(settings)

    def close(kind: str, text: str) -> NoReturn:
        end(kind, text, players.close)  # what is said first counts: ranks whose process ends would say that

    clock.watch(lambda: players.places(request.file), lambda text: close("late", text))
    try:
        own = set() if request.answers else defined(request.starter)
        given = Given(players, request.source, request.file, own)
    except BaseException as error:
        close("failed", f"loading it: {in_words(error, file=request.file)}")
    try:
        problem = search(given)
    except TimeoutError as error:  # of ranks that are processes: they wait for each other
        close("waited", re.sub(", since [0-9:]+,", "", str(error).partition(";")[0]))
    except BaseException as error:
        traceback.print_exc()
        close("blind", f"{type(error).__name__} in the judge itself; tell the task's author")
    if problem is not None:
        close("failed", problem)
    players.close()
    say("passed", "")
    finish()
    os._exit(0)


def imports(source: str) -> list[str]:
    """The modules that a program imports at its top."""
    try:
        top = ast.parse(source).body
    except SyntaxError:
        return []
    found = [node.module for node in top if isinstance(node, ast.ImportFrom) and node.module]
    return found + [alias.name for node in top if isinstance(node, ast.Import) for alias in node.names]


def defined(source: str) -> set[str]:
    """The functions and classes at the top of a program."""
    return {node.name for node in ast.parse(source).body if isinstance(node, ast.FunctionDef | ast.ClassDef)}


def refuses(task: Task, seed: int) -> bool:
    """Whether the task refuses its wrong answer."""
    return counterexample(task, task.broken, seed, shrink=False) is not None


Search = Callable[[Any], str | None]
Finish = Callable[[], None]
Trying = Callable[[str], None]


def threads(task: Task, seed: int, trying: Trying) -> tuple[Search, Finish]:
    """The search whose ranks are threads of this process."""
    return lambda given: counterexample(task, given, seed, watch=trying), lambda: None


def mpi(task: Task, seed: int, trying: Trying) -> tuple[Search, Finish]:
    """The same checks on a few cases, each rank a process: this one is one of them.

    A rank's trouble ends the job; what the others wait for by then, they say.
    """
    world = load_mpi()()
    cases = draw_cases(task, seed, MPI_RANKS, MPI_CASES)

    def search(given: Any) -> str | None:
        world.meet("for all ranks to load the submission")
        before, os.environ["MINIGRAD_TIMEOUT"] = os.environ["MINIGRAD_TIMEOUT"], str(MPI_PATIENCE)
        for case in cases:
            trying(str(case))
            here = world.split(int(world.rank >= case.ranks))
            if world.rank < case.ranks and (problem := alone(task, given, case, here)):
                return f"{case}: {problem}"
            world.meet(NEXT_CASE)
        os.environ["MINIGRAD_TIMEOUT"] = before
        return None

    return search, lambda: world.meet("for all ranks to pass")


def alone(task: Task, given: Any, case: Any, comm: MPIComm) -> str | None:
    """What this rank finds wrong on a case."""
    try:
        task.check(given, case, comm)
        comm.close()
    except TimeoutError:
        raise
    except BaseException as error:
        return in_words(error, comm.rank, given.__file__)
    return None


if __name__ == "__main__":
    main(Path(sys.argv[1]))
