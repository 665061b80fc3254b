"""One run of a command that a signal ends, on a terminal of its own, and what it leaves behind."""

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
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from backends.process.sweep import SHARED, mapped

MARK = "MINIGRAD_TEST_RUN"  # in the variables of all that a run starts
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL)
STOP = 100.0  # seconds after which a test gives up
SOON = 30.0  # seconds in which all is over, also where many share the cores; a stop, no measurement
SCRIPT = """
import pathlib
import numpy as np
from backends.comm import allreduce
from backends.comm.mpi import MPIComm

comm = MPIComm()
while True:
    allreduce(comm, np.ones(1000))
    pathlib.Path(f"script.{comm.rank}").touch()
"""
TRAIN = ["train", "--epochs", "1000", "--net", "mlp", "--batch", "500", "--transport"]
COMMANDS = {
    "train": [*TRAIN, "threads"],
    "train on threads": [*TRAIN, "threads", "--data", "3"],
    "train on MPI": [*TRAIN, "mpi", "--data", "2"],
    "train a pipeline on MPI": [*TRAIN, "mpi", "--pipe", "2"],
    "train with survive": [*TRAIN, "mpi", "--data", "3", "--strategy", "server", "--option", "survive=True"],
    "prove on threads": ["prove", "--transport", "threads", "--data", "4", "--net", "vgg", "--batch", "900"],
    "prove on MPI": ["prove", "--transport", "mpi", "--data", "2", "--net", "vgg", "--batch", "900"],
    "grade": ["grade", "a2", "--answers"],
    "run": ["run", "-n", "2", "script.py"],
    "lesson": ["lesson", "05"],
    "doctor": ["doctor"],
    "trace": ["trace", "run.json"],
}  # fmt: skip


@dataclass
class Run:
    """A run of ``command`` in ``folder``: what it printed, how it ended, and what is left of it."""

    folder: Path
    command: str
    process: subprocess.Popen
    terminal: int
    mark: str
    began: float
    output: bytearray = field(default_factory=bytearray)
    status: int = -1  # as a shell tells it
    seconds: float = 0.0  # from the signal to the end, of all processes where the launcher is killed
    late: bool = False  # it had ended before there was a signal
    listened: bool = False  # the process that got the signal had set a handler
    left: list[str] = field(default_factory=list)  # processes and shared memory

    def read(self, seconds: float) -> None:
        """Read what is printed, for some time."""
        while select.select([self.terminal], [], [], seconds)[0]:
            try:
                self.output += os.read(self.terminal, 65536)
            except OSError:  # all that print have ended
                time.sleep(seconds)
                return

    @property
    def text(self) -> str:
        return self.output.decode(errors="replace")

    @property
    def words(self) -> list[str]:
        """The lines that minigrad says."""
        lines = re.sub(r"\x1b\[[?0-9;]*[A-Za-z]", "", self.text).replace("\r", "\n").splitlines()
        return [line for line in lines if line.startswith("minigrad")]

    @property
    def cursor_shown(self) -> bool:
        return self.text.rfind("\x1b[?25l") <= self.text.rfind("\x1b[?25h")

    @property
    def processes(self) -> list[int]:
        """All that the command has started and that runs."""
        pids = []
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if f"{MARK}={self.mark}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                    pids.append(int(folder.name))
        return sorted(pids)

    def pid_of(self, target: str) -> int | None:
        """The process ``launcher``, ``rank 1``, or that of another program; None before it is there."""
        if target == "launcher":
            return self.process.pid
        rank = f"PMI_RANK={target.removeprefix('rank ')}".encode()
        last = None
        for pid in self.processes:
            with suppress(OSError):
                line = Path(f"/proc/{pid}/cmdline").read_bytes()
                variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
                if target.encode() in line.split(b"\0")[0] or (rank in variables and b"backends" in line):
                    last = pid  # behind its shield
        return last

    def figures(self) -> bool:
        """Whether a training has written the figures of two steps, and so knows that there are figures."""
        with suppress(FileNotFoundError):  # a new folder gets its name meanwhile
            logs = self.folder.glob("runs/*/metrics.jsonl")
            return any(log.read_bytes().count(b"\n") > 2 for log in logs)
        return False


def listens(pid: int) -> bool:
    """Whether a process has a handler of SIGTERM: Python has none of its own."""
    with suppress(OSError):
        (mask,) = re.findall(r"SigCgt:\s*(\w+)", Path(f"/proc/{pid}/status").read_text(encoding="utf-8"))
        return bool(int(mask, 16) >> (signal.SIGTERM - 1) & 1)
    return False


def started(folder: Path, command: str) -> Run:
    """Start ``minigrad`` on a terminal: one of COMMANDS, or the arguments of another one."""
    (folder / "script.py").write_text(SCRIPT, encoding="utf-8")
    os.mkfifo(folder / "run.json")  # a trace that nobody writes: its reader waits until the signal comes
    mark, began = uuid.uuid4().hex, time.time()
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 150, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "backends", *COMMANDS.get(command, command.split())],
        cwd=folder,
        env={**os.environ, MARK: mark, "TERM": "xterm", "OPENBLAS_NUM_THREADS": "1"},
        stdin=its,
        stdout=its,
        stderr=its,
        start_new_session=True,
        # Where a shell started the tests in the background, it had SIGINT ignored, also while Python starts.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    os.close(its)
    return Run(folder, command, process, ours, mark, began)


def interrupted(
    folder: Path,
    command: str,
    number: int,
    target: str = "launcher",
    when: Callable[[Run], object] = Run.figures,
) -> Run:
    """Run a command; signal the process ``target`` as soon as ``when(run)`` is true and it is there.

    To a rank only once it listens: before that Python is starting, and the signal's name is lost in mpiexec.
    """
    run, shared, start = started(folder, command), memory(0.0), time.monotonic()
    pid = None
    while pid is None and run.process.poll() is None and time.monotonic() - start < STOP:
        run.read(0.01)
        pid = run.pid_of(target) if when(run) else None
        if pid is not None and target.startswith("rank") and number != signal.SIGKILL and not listens(pid):
            pid = None
    run.late = pid is None
    if pid is not None:
        run.listened = listens(pid)
        with suppress(ProcessLookupError):
            os.kill(pid, number)
    sent_at = time.monotonic()
    while run.process.poll() is None and time.monotonic() - sent_at < STOP:
        run.read(0.01)
    killed = number == signal.SIGKILL and target == "launcher"
    while killed and run.processes and time.monotonic() - sent_at < STOP / 4:
        run.read(0.01)
    run.seconds = time.monotonic() - sent_at
    finish(run, shared)
    return run


def finish(run: Run, shared: set[str]) -> None:
    """See what is left of the run, and end that."""
    for pid in run.processes:
        with suppress(OSError):
            run.left.append(f"{pid}: {Path(f'/proc/{pid}/cmdline').read_bytes()!r}")
            os.kill(pid, signal.SIGKILL)
    run.read(0.01)
    status = run.process.wait()
    run.status = status if status >= 0 else 128 - status
    os.close(run.terminal)
    new, end = memory(run.began) - shared, time.monotonic() + 10
    while new and time.monotonic() < end:  # other jobs' files are mapped, or gone soon
        time.sleep(0.2)
        in_use = mapped()
        new = {name for name in new & memory(run.began) if name not in in_use}
    run.left += sorted(new)


def memory(began: float) -> set[str]:
    """The files of shared memory, of MPI's libraries, that are younger than ``began``."""
    names = set()
    for file in Path("/dev/shm").glob("*"):
        with suppress(OSError):
            if file.name.startswith(SHARED) and file.stat().st_mtime >= began:
                names.add(file.name)
    return names


@dataclass(frozen=True)
class Case:
    """A run of the storm: the signal comes ``after`` so many seconds, but never while Python is starting."""

    command: str
    number: int
    target: str
    after: float

    def __str__(self) -> str:
        return f"{self.command}, {signal.Signals(self.number).name} to {self.target} after {self.after} s"

    def run(self, folder: Path) -> Run:
        end = time.monotonic() + self.after

        def when(run: Run) -> bool:
            return time.monotonic() >= end and listens(run.process.pid)

        return interrupted(folder, self.command, self.number, self.target, when)


def storm(seed: int, n: int) -> list[Case]:
    """``n`` runs drawn from ``seed``, of every command as many: which signal, to whom, when."""
    draw = random.Random(seed)
    names = list(COMMANDS)
    draw.shuffle(names)
    cases = []
    for i in range(n):
        name = names[i % len(names)]
        ranks = ["rank 0", "rank 1"] if "MPI" in name or name == "run" else []
        target = draw.choice(["launcher", "launcher", *ranks])
        last = {"trace": 1, "doctor": 3, "lesson": 4}.get(name, 4)  # seconds, for some are soon done
        cases.append(Case(name, draw.choice(SIGNALS), target, round(draw.uniform(0, last), 2)))
    return cases
