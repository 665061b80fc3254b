"""One run of a command that a signal interrupts, on a terminal of its own, and what it leaves behind."""

from __future__ import annotations

import fcntl
import os
import pty
import random
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from backends.sweep import SHARED, mapped

MARK = "MINIGRAD_TEST_RUN"  # in the variables of all that a run starts
SCRIPT = """
from backends.comm.mpi import MPIComm
from backends.comm import allreduce
import numpy as np
comm = MPIComm()
while True:
    allreduce(comm, np.ones(1000))
"""
LONG = ["--epochs", "500", "--net", "mlp"]
COMMANDS = {
    "train": ["train", *LONG],
    "train on threads": ["train", *LONG, "--data", "3", "--transport", "threads"],
    "train on MPI": ["train", *LONG, "--data", "2", "--transport", "mpi"],
    "train a pipeline": ["train", *LONG, "--pipe", "2", "--transport", "mpi"],
    "train with survive": ["train", *LONG, "--data", "3", "--transport", "mpi", "--strategy", "server",
                           "--option", "survive=True"],
    "prove on threads": ["prove", "--data", "4", "--transport", "threads", "--net", "vgg", "--batch", "500"],
    "prove on MPI": ["prove", "--data", "2", "--transport", "mpi", "--net", "vgg", "--batch", "500"],
    "grade": ["grade", "a2", "--answers"],
    "run": ["run", "-n", "2", "script.py"],
    "lesson": ["lesson", "05"],
    "doctor": ["doctor"],
    "trace": ["trace", "run.json"],
}  # fmt: skip


@dataclass
class Run:
    """What a run printed, how it ended, and how long after the signal."""

    status: int  # as a shell tells it
    seconds: float
    text: str
    left: list[str] = field(default_factory=list)  # processes and shared memory

    @property
    def words(self) -> list[str]:
        """The lines that say what was interrupted."""
        lines = re.sub(r"\x1b\[[?0-9;]*[A-Za-z]", "", self.text).replace("\r", "\n").splitlines()
        return [line for line in lines if line.startswith("minigrad")]

    @property
    def cursor_shown(self) -> bool:
        return self.text.rfind("\x1b[?25l") <= self.text.rfind("\x1b[?25h")


def interrupted(
    folder: Path,
    command: list[str],
    number: int,
    *,
    after: float,
    rank: int | None = None,
    stop: float = 60.0,
) -> Run:
    """Run ``minigrad command`` and signal it, or its rank, ``after`` seconds, or when that rank is there.

    It is ended after ``stop`` seconds.
    """
    mark, began, start = uuid.uuid4().hex, time.time(), time.monotonic()
    (folder / "script.py").write_text(SCRIPT)
    shared = set(os.listdir("/dev/shm"))
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    variables = {**os.environ, MARK: mark, "TERM": "xterm", "OPENBLAS_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, "-m", "backends", *command],
        cwd=folder, env=variables, stdin=its, stdout=its, stderr=its, start_new_session=True,
    )  # fmt: skip
    os.close(its)
    output = bytearray()

    def read(seconds: float) -> None:
        while select.select([ours], [], [], seconds)[0]:
            try:
                output.extend(os.read(ours, 65536))
            except OSError:  # all ends of the terminal are closed
                time.sleep(min(seconds, 0.01))
                return

    target = None
    while process.poll() is None and time.monotonic() - start < stop:
        read(0.01)
        if time.monotonic() - start < after:
            continue
        target = process.pid if rank is None else rank_of(mark, rank)
        if target is not None:
            break
    if target is not None:
        with suppress(ProcessLookupError):
            os.kill(target, number)
    told = time.monotonic()
    while process.poll() is None and time.monotonic() - told < stop:
        read(0.01)
    seconds = time.monotonic() - told
    while time.monotonic() - told < 5 and marked(mark):  # of a killed launcher
        read(0.01)
    if number == signal.SIGKILL and rank is None:
        seconds = time.monotonic() - told
    left = [f"{pid}: {Path(f'/proc/{pid}/cmdline').read_bytes()!r}" for pid in marked(mark)]
    if process.poll() is None:
        process.kill()
    for pid in marked(mark):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    read(0)
    status = process.wait()
    os.close(ours)
    new = memory(began) - shared
    while new and time.monotonic() - told < 10:  # other jobs' are mapped, or gone soon
        time.sleep(0.2)
        new = {name for name in new & memory(began) if name not in mapped()}
    left += sorted(new)
    return Run(status if status >= 0 else 128 - status, seconds, output.decode(errors="replace"), left)


def memory(began: float) -> set[str]:
    """Our files of shared memory that are younger than ``began``."""
    found = set()
    for file in Path("/dev/shm").iterdir():
        with suppress(OSError):
            if file.name.startswith(SHARED) and file.stat().st_mtime >= began:
                found.add(file.name)
    return found


def marked(mark: str) -> list[int]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if f"{MARK}={mark}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return found


def rank_of(mark: str, rank: int) -> int | None:
    """The process that is rank ``rank`` of the run; of a shield and its rank the rank."""
    found = None
    for pid in sorted(marked(mark)):
        with suppress(OSError):
            variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            if (
                f"PMI_RANK={rank}".encode() in variables
                and b"backends" in Path(f"/proc/{pid}/cmdline").read_bytes()
            ):
                found = pid
    return found


@dataclass(frozen=True)
class Case:
    """A run of the storm."""

    command: str
    number: int
    rank: int | None
    after: float


def storm(seed: int, n: int) -> list[Case]:
    """``n`` runs, of every command as often, at random moments; KILL is for a launcher or a rank alone."""
    draw = random.Random(seed)
    names, cases = list(COMMANDS), []
    for i in range(n):
        name = names[i % len(names)]
        parallel = "MPI" in name or name in ("run", "train a pipeline")
        rank = draw.choice([None, None, 0, 1]) if parallel else None
        number = draw.choice([signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
        cases.append(Case(name, number, rank, round(draw.uniform(0, 8), 2)))
    return cases
