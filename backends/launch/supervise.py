"""Running a command that starts processes of its own, and leaving none of them behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from . import sweep as sweeping
from .interrupts import Interrupted
from .signals import SIGNALS
from .sweep import MARK, sweep_memory

__all__ = ["MARK", "Job", "supervise", "sweep", "sweep_memory", "watched"]

KEPT = "kept"  # the note in the job's folder: where a training writes its figures
LOOK = 0.05  # seconds between two looks at the job
GRACE = 2.5  # seconds for a user's script to end by itself, once told to
LOST = 255  # mpiexec's status where its proxy, or what that was starting, is gone
LATE = 3.0  # seconds in which a rank's error ends the job, where MPI has been started
PROXY_LATE = 1.0  # seconds by which mpiexec ends after the proxies that keep its ranks
BANNER = re.compile(rb"={60,}\n=   BAD TERMINATION.*?FAQ page for debugging suggestions\n", re.DOTALL)
BEGUN = re.compile(  # a banner of which more is to come; it is written in pieces
    rb"(?<![^\n])=+\Z|={60,}\n(=[^\n]{0,40})?\Z|={60,}\n=   BAD TERMINATION.*\Z", re.DOTALL
)
NAMES = {128 + number: signal.Signals(number).name for number in SIGNALS}


@dataclass
class Job:
    """A command under supervision.

    Its processes carry ``folder`` in MARK, and its ranks note there how they end.
    """

    program: str
    folder: Path
    process: subprocess.Popen
    proxies: dict[int, float] = field(default_factory=dict)  # when each was last seen

    def wait(self, seconds: float | None) -> int:
        """The status with which the job ended, or has to end; TimeoutExpired after ``seconds``."""
        start = time.monotonic()
        while True:
            with suppress(subprocess.TimeoutExpired):
                return self.status(self.process.wait(LOOK))
            if (status := self.over()) is not None:
                return status
            if seconds is not None and time.monotonic() - start > seconds:
                raise subprocess.TimeoutExpired(self.process.args, seconds)

    def over(self) -> int | None:
        """The status of a job that runs, but cannot go on, after a word about it."""
        if end := self.first_end():
            rank, status, age = end
            if status in NAMES:
                self.say(f"rank {rank} was interrupted by {NAMES[status]}, and with it the job ends")
                return status
            if age > LATE:
                self.say(f"rank {rank} has ended with status {status}, and with it the job ends")
                return status
        now = time.monotonic()
        self.proxies |= dict.fromkeys(children(self.process.pid), now)
        if any(now - seen > PROXY_LATE for seen in self.proxies.values()):
            self.say("mpiexec's hydra_pmi_proxy was killed, and with it the job ends")
            return 128 + signal.SIGKILL
        return None

    def status(self, status: int) -> int:
        """What the command's exit status tells, as a shell would: of MPICH's it is a rank's signal.

        Its ranks note another status than 0, so what is not noted is the signal by which one of them ended.
        """
        if status and (end := self.first_end()):
            who, status = f"rank {end[0]}", end[1]
            if status not in NAMES:
                return status
        elif status < 0:
            who, status = self.program, 128 - status
        elif self.program == "mpiexec" and status in set(signal.Signals) - {1, 2}:
            who, status = "a rank", 128 + status
        elif self.program == "mpiexec" and status == LOST and self.proxies:
            who, status = "a process of mpiexec's", 128 + signal.SIGKILL
        else:
            return status
        self.say(f"{who} was ended by {signal.Signals(status - 128).name}, and with it the job")
        return status

    def say(self, message: str) -> None:
        print(f"minigrad: {message}; {self.kept()}", file=sys.stderr, flush=True)

    def kept(self) -> str:
        """In words, what is left of the work."""
        try:
            return kept_in(Path((self.folder / KEPT).read_text()))
        except OSError:
            return "nothing was kept"

    def first_end(self) -> tuple[int, int, float] | None:
        """Of the ranks that noted how they ended the first: its rank, its status, and how long ago."""
        ends = []
        for file in self.folder.glob("end.*[0-9]"):
            with suppress(OSError, ValueError):
                ends.append((file.stat().st_mtime, int(file.suffix[1:]), int(file.read_text())))
        if not ends:
            return None
        at, rank, status = min(ends)
        return rank, status, time.time() - at

    def pass_on(self, number: int, seconds: float) -> None:
        """Tell the ranks, or the one process there is, to end, and give them ``seconds``."""
        pids = [int(file.read_text()) for file in self.folder.glob("pid.*[0-9]")] or [self.process.pid]
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)


def supervise(
    command: list[str],
    variables: dict[str, str],
    *,
    grace: float = 0.0,
    seconds: float | None = None,
    output: IO | None = None,
) -> int:
    """Run ``command`` to its end, and end every process it leaves; its exit status, as a shell tells it.

    What interrupts this is passed on where the command has ``grace``, the seconds it takes to end by
    itself; then it is killed. A job whose launcher is killed is ended too. ``output`` takes what the
    command prints. Raises TimeoutExpired after ``seconds``.
    """
    with supervised(command, variables, output) as job:
        try:
            return job.wait(seconds)
        except Interrupted as told:
            if grace:
                job.pass_on(told.number, grace)
            raise Interrupted(told.number, job.kept()) from None
        except KeyboardInterrupt:
            if grace:
                job.pass_on(signal.SIGINT, grace)
            raise


@contextmanager
def supervised(command: list[str], variables: dict[str, str], output: IO | None) -> Iterator[Job]:
    """Start ``command``; at the end nothing of it is left."""
    with tempfile.TemporaryDirectory(prefix="minigrad-job-", ignore_cleanup_errors=True) as folder:
        start, outer = time.time(), os.environ.get(MARK)
        with (
            watched(folder, start, folder),
            relay() if output is None else nullcontext(output) as stdout,
            ThreadPoolExecutor(1) as pool,
        ):
            # On another thread, which no signal interrupts: the process is known whatever happens.
            process = pool.submit(
                subprocess.Popen,
                command,
                env={**variables, MARK: f"{outer}:{folder}" if outer else folder},
                start_new_session=True,
                stdout=stdout,
                stderr=None if output is None else subprocess.STDOUT,
            )
            try:
                yield Job(Path(command[0]).name, Path(folder), process.result())
            finally:
                sweep(process.result(), folder)
                sweep_memory(start)


@contextmanager
def relay() -> Iterator[int]:
    """Where to print what goes to stdout, without MPICH's nine lines on how a rank ended: ours are fewer."""
    reader, writer = os.pipe()

    def pass_on() -> None:
        with suppress(OSError), open(reader, "rb", buffering=0) as source:
            for text in without_banner(iter(lambda: source.read(1 << 16), b"")):
                while text:
                    text = text[os.write(1, text) :]

    thread = threading.Thread(target=pass_on, name="relay", daemon=True)
    thread.start()
    try:
        yield writer
    finally:
        os.close(writer)
        thread.join(1)


def without_banner(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """What the chunks hold, as soon as it is known to be no part of MPICH's banner."""
    held = b""
    for chunk in chunks:
        held = BANNER.sub(b"", held + chunk)
        begun = BEGUN.search(held)
        yield held[: begun.start()] if begun else held
        held = held[begun.start() :] if begun else b""
    yield held


@contextmanager
def watched(mark: str, start: float, folder: str) -> Iterator[None]:
    """Within this, if this process is killed or interrupted, what carries ``mark`` is ended.

    And ``folder`` is removed.
    """
    line = [sys.executable, "-I", "-S", sweeping.__file__, mark, str(start), folder]
    watcher = subprocess.Popen(
        line,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    word = b""
    try:
        yield
        word = b"."
    finally:
        with suppress(OSError, subprocess.TimeoutExpired):
            watcher.communicate(word, timeout=2)


def sweep(process: subprocess.Popen, mark: str) -> None:
    """Kill what is left of the job; mpiexec first, which would only tell of how its ranks end."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    sweeping.kill(mark)
    process.wait()


def children(pid: int) -> list[int]:
    """The processes that ``pid`` started and that have not ended; none where the system does not tell."""
    found = []
    with suppress(OSError):
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            if Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
                found.append(int(child))
    return found


def kept_in(file: Path | None) -> str:
    """In words, what a training has kept in the file of its figures."""
    try:
        steps = len(json.loads(file.read_text())["losses"]) if file else 0
    except (OSError, ValueError):
        steps = 0
    if not steps:
        return "nothing was kept, the first epoch had not ended"
    return f"the figures of its first {steps} steps are in {file}"
