"""A judge's process for one task: started, waited for with a bound, ended with all it started, and heard."""

from __future__ import annotations

import ast
import os
import re
import secrets
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from ..launch.launch import THREAD_VARIABLES, environment, find_mpiexec
from ..launch.supervise import MARK, sweep, sweep_memory, watched
from .ending import ending
from .judge import MPI_RANKS, NEXT_CASE, Request, sign

STARTING = 20.0  # seconds beyond a task's own, for Python to start on a busy core
TAIL = 2000  # characters shown of what was printed


@dataclass(frozen=True)
class Verdict:
    """How a task ended: ``message`` says what is wrong, ``output`` is the end of what was printed."""

    passed: bool
    message: str
    output: str
    seconds: float


def grade_apart(request: Request) -> Verdict:
    """Grade one task in processes of their own, in an empty folder, and leave nothing of them behind."""
    began = time.monotonic()
    ranks = MPI_RANKS if request.transport == "mpi" else 1
    with tempfile.TemporaryDirectory(prefix="minigrad-grade-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        work = folder / "work"
        work.mkdir()
        share = request.mebibytes // (
            2 if ranks > 1 else 1
        )  # three such halves still fit where one whole does
        request = replace(request, word=secrets.token_hex(16), mebibytes=share)
        for rank in range(ranks):
            request.write(folder / f"request.{rank}")
        status = run(command(folder, request.transport), work, request)
        lines = [heard(folder / f"verdict.{rank}", request.word) for rank in range(ranks)]
        passed, message = conclude(lines, status, request.seconds)
        output = "\n".join(filter(None, (tail(folder / f"output.{rank}") for rank in range(ranks))))
    return Verdict(passed, printable(message), printable(output), time.monotonic() - began)


def command(folder: Path, transport: str) -> list[str]:
    if transport == "threads":
        return [sys.executable, "-m", "backends.grading.judge", str(folder)]
    mpiexec = [str(find_mpiexec()), "-n", str(MPI_RANKS)]
    return [*mpiexec, sys.executable, "-m", "mpi4py", "-m", "backends.grading.judge", str(folder)]


def run(line: list[str], work: Path, request: Request) -> int | None:
    """Run the command in ``work``; its exit status, None where its time ran out."""
    mark, start = uuid.uuid4().hex, time.time()
    variables = {
        **environment(MPI_RANKS),
        **dict.fromkeys(THREAD_VARIABLES, "1"),
        MARK: mark,
        "MINIGRAD_TIMEOUT": "60",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        "HYPOTHESIS_STORAGE_DIRECTORY": str(work),
        "TMPDIR": str(work),
        "HOME": str(work),
        "MPLCONFIGDIR": str(work),
        "MPLBACKEND": "Agg",
    }
    with watched(mark, start, str(work.parent)):
        process = subprocess.Popen(
            line,
            cwd=work,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            return process.wait(request.seconds + STARTING)
        except subprocess.TimeoutExpired:
            return None
        finally:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)  # what it left behind in its own session
            sweep(process, mark)
            if request.transport == "mpi":
                sweep_memory(start)


Lines = list[tuple[str, str]]


def heard(file: Path, word: str) -> Lines:
    """What a rank said: kind and text of each line that is signed with the word."""
    if not file.exists():
        return []
    lines = [line.partition(" ") for line in file.read_text(errors="replace").split("\n")]
    said = [line.split(" ", 1) for signed, _, line in lines if signed == sign(line, word)]
    return [(kind, ast.literal_eval(text)) for kind, text in said]


def conclude(ranks: list[Lines], status: int | None, seconds: float) -> tuple[bool, str]:
    """Whether the task passed, and what is wrong, from what all ranks said and how the process ended."""
    ends = [[line for line in lines if line[0] != "case"] for lines in ranks]
    if all(end == [("passed", "")] for end in ends):
        return True, ""
    told = [(kind, text) for end in ends for kind, text in end if kind != "passed"]
    cases = [text for lines in ranks for kind, text in lines if kind == "case"]
    where = f"{cases[-1]}: " if cases else ""
    if told:
        kind, text = min(told, key=lambda line: line[0] == "waited")
        if kind == "waited":  # each rank says for whom: that is the circle
            waits = [f"\n  {text}" for _, text in told if NEXT_CASE not in text]
            return False, f"{where}no rank can go on{''.join(waits)}"
        return False, {"late": f"{where}{text}", "blind": f"the grader: {text}"}.get(kind, text)
    if any(end for end in ends if end != [("passed", "")]):
        return False, "more than one verdict was given: something but the grader wrote it"
    return False, f"{where}{ending(status, seconds)}"


def printable(text: str) -> str:
    """The text without the characters that a terminal obeys, that turn the order of letters round, and that
    XML and databases cannot hold.
    """
    text = re.sub("[\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]", "?", text)
    return re.sub("[^\t\n\r\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "?", text)


def tail(file: Path) -> str:
    """The end of what a rank printed."""
    if not file.exists():
        return ""
    with file.open("rb") as stream:
        stream.seek(max(0, file.stat().st_size - 4 * TAIL))
        lines = stream.read().decode(errors="replace").strip().splitlines()
    text = "\n".join(line for line in lines if not line.startswith("minigrad: rank"))  # told by the message
    return text if len(text) <= TAIL else f"... {text[-TAIL + 4 :]}"
