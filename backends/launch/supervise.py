"""Runs a command that starts processes of its own, and leaves none of them behind."""

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
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from . import sweep
from .signals import SIGNALS, Interrupted, uninterrupted
from .sweep import MARK
from .terminal import progress_end, wrapped

SAVED = "kept"  # the note in the job's folder: the path of the figures that a training writes
INTERVAL = 0.05  # seconds between two checks of the job
GRACE = 2.5  # seconds that a user's script has to end by itself after a signal
LOST = 255  # mpiexec's status when its proxy, or a process that the proxy was starting, has disappeared
RANK_TIMEOUT = 3.0  # seconds within which a rank's error ends the job, once MPI has started
PROXY_TIMEOUT = 1.0  # seconds within which mpiexec ends after one of its proxies
BANNER = re.compile(rb"={60,}\n=   BAD TERMINATION.*?FAQ page for debugging suggestions\n", re.DOTALL)
PARTIAL_BANNER = re.compile(  # the banner arrives in pieces
    rb"(?<![^\n])=+\Z|={60,}\n(=[^\n]{0,40})?\Z|={60,}\n=   BAD TERMINATION.*\Z", re.DOTALL
)
NAMES = {128 + number: signal.Signals(number).name for number in (*SIGNALS, signal.SIGKILL)}


@dataclass
class Job:
    """A command under supervision.

    Its processes carry ``folder`` in MARK, and its ranks note their end in that folder.
    """

    program: str
    folder: Path
    process: subprocess.Popen
    progress_end: str = ""  # written before a message
    proxies: dict[int, float] = field(default_factory=dict)  # the time at which each was last running

    def wait(self, seconds: float | None) -> int:
        """The status with which the job ended or must end; raises TimeoutExpired after ``seconds``."""
        start = time.monotonic()
        while True:
            with suppress(subprocess.TimeoutExpired):
                return self.status(self.process.wait(INTERVAL))
            if (status := self.over()) is not None:
                return status
            if seconds is not None and time.monotonic() - start > seconds:
                raise subprocess.TimeoutExpired(self.process.args, seconds)

    def over(self) -> int | None:
        """The status of a job that runs but cannot go on, after a message about it; else None."""
        if end := self.first_end():
            rank, status, age = end
            if status in NAMES:
                self.say(f"rank {rank} was interrupted by {NAMES[status]}, and with it the job ends")
                return status
            if age > RANK_TIMEOUT:
                self.say(f"rank {rank} has ended with status {status}, and with it the job ends")
                return status
        now = time.monotonic()
        self.proxies |= dict.fromkeys(proxies_of(self.process.pid), now)
        if any(now - time_running > PROXY_TIMEOUT for time_running in self.proxies.values()):
            self.say("mpiexec's hydra_pmi_proxy was killed, and with it the job ends")
            return 128 + signal.SIGKILL
        return None

    def status(self, status: int) -> int:
        """The exit status as a shell reports it. MPICH's mpiexec exits with the number of a rank's signal.

        Ranks note every other status than 0, so a status without a note is the signal that ended a rank.
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
        print(f"{self.progress_end}minigrad: {message}; {self.saved()}", file=sys.stderr, flush=True)

    def saved(self) -> str:
        """The results that the job has saved, in words."""
        try:
            return saved_in(Path((self.folder / SAVED).read_text()))
        except OSError:
            return "nothing was kept"

    def first_end(self) -> tuple[int, int, float] | None:
        """The first rank that noted its end: its number, its status, and the seconds since then."""
        ends = []
        for file in self.folder.glob("end.*[0-9]"):
            with suppress(OSError, ValueError):
                ends.append((file.stat().st_mtime, int(file.suffix[1:]), int(file.read_text())))
        if not ends:
            return None
        at, rank, status = min(ends)
        return rank, status, time.time() - at

    def pass_on(self, number: int, seconds: float) -> None:
        """Send the signal to all ranks, or to the only process, and wait up to ``seconds`` for their end.

        Ranks of mpiexec that are still loading Python have begun nothing, and nothing waits for them.
        """
        pids = [int(file.read_text()) for file in self.folder.glob("pid.*[0-9]")]
        if not pids and self.program == "mpiexec":
            return
        pids = pids or [self.process.pid]
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
    width: int | None = None,
) -> int:
    """Run ``command``, and end every process that it leaves; returns the exit status as a shell reports it.

    An interrupting signal is passed on to the command, which has ``grace`` seconds to end by itself before
    it is killed. If this process is killed, the job ends too. ``output`` is a file for all that the command
    prints; else lines wider than ``width`` are cut between words. Raises TimeoutExpired after ``seconds``.
    """
    with (
        tempfile.TemporaryDirectory(prefix="minigrad-job-", ignore_cleanup_errors=True) as folder,
        relay(width) if output is None else nullcontext(output) as stdout,
        supervised(command, variables, folder, stdout=stdout, stderr=output) as job,
    ):
        try:
            return job.wait(seconds)
        except Interrupted as interruption:
            if grace:
                job.pass_on(interruption.number, grace)
            sys.stderr.write(job.progress_end)
            raise Interrupted(interruption.number, job.saved()) from None


@contextmanager
def supervised(command: list[str], variables: dict[str, str], folder: str, **settings: Any) -> Iterator[Job]:
    """Start ``command`` with these settings of Popen; at the end, kill the processes of its job.

    Their shared memory is freed, too. ``folder`` is the job's own: it marks the processes, and is removed if
    this process is killed.
    """
    start, outer = time.time(), os.environ.get(MARK)
    variables = {**variables, MARK: f"{outer}:{folder}" if outer else folder}
    with watched(folder, start, folder) as all_ended:
        process = uninterrupted(  # so it is always known, and can be ended
            subprocess.Popen, command, env=variables, start_new_session=True, **settings
        )
        try:
            yield Job(Path(command[0]).name, Path(folder), process, progress_end(variables))
        finally:
            kill_job(process, folder)
            sweep.sweep_memory(start)
            all_ended()


@contextmanager
def relay(width: int | None = None) -> Iterator[int]:
    """A descriptor that copies to stdout, without MPICH's nine lines about a rank's end; ours is one line.

    With a ``width`` no line is wider, unless it is one word.
    """
    reader, writer = os.pipe()

    def pass_on() -> None:
        with suppress(OSError), open(reader, "rb", buffering=0) as source:
            texts = without_banner(iter(lambda: source.read(1 << 16), b""))
            for text in texts if width is None else wrapped(texts, width):
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
    """The chunks without MPICH's banner, each part as soon as it is known not to belong to it."""
    text = b""
    for chunk in chunks:
        text = BANNER.sub(b"", text + chunk)
        partial = PARTIAL_BANNER.search(text)
        end = partial.start() if partial else len(text)
        yield text[:end]
        text = text[end:]
    yield text


@contextmanager
def watched(mark: str, start: float, folder: str) -> Iterator[Callable[[], None]]:
    """If this process is killed or interrupted inside the ``with``, end all processes with ``mark``.

    Then ``folder`` is removed, too. Call the yielded function once all these processes have ended.
    """
    line = [sys.executable, "-I", "-S", sweep.__file__, mark, str(start), folder]
    null, ended = subprocess.DEVNULL, threading.Event()
    watcher: subprocess.Popen[bytes] | None = None
    try:
        watcher = uninterrupted(
            subprocess.Popen, line, stdin=subprocess.PIPE, stdout=null, stderr=null, start_new_session=True
        )
        yield ended.set
        ended.set()
    finally:
        if watcher is not None:
            with suppress(OSError, subprocess.TimeoutExpired):
                watcher.communicate(b"." if ended.is_set() else b"", timeout=2)


def kill_job(process: subprocess.Popen, mark: str) -> None:
    """Kill the job's processes, mpiexec first, because it would report the end of its ranks."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    sweep.kill(mark)
    process.wait()


def proxies_of(pid: int) -> list[int]:
    """The running proxies that MPICH's mpiexec started; none where there is no /proc.

    Open MPI's mpiexec starts the ranks itself.
    """
    running = []
    with suppress(OSError):
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            name, _, rest = Path(f"/proc/{child}/stat").read_text().partition("(")[2].rpartition(")")
            if rest.split()[0] != "Z" and "hydra" in name:
                running.append(int(child))
    return running


def saved_in(file: Path | None) -> str:
    """The figures that a training has saved in ``file``, in words, and how it goes on from a checkpoint."""
    try:
        figures = json.loads(file.read_text()) if file else {}
    except (OSError, ValueError):
        figures = {}
    steps, checkpoints = len(figures.get("losses", ())), figures.get("checkpoints")
    if not steps:
        return "nothing was kept, the first epoch had not ended"
    go_on = checkpoints is not None and any(Path(checkpoints).glob("step-*"))
    way = f"; go on with the same command and --resume {checkpoints}" if go_on else ""
    return f"the figures of its first {steps} steps are in {file}{way}"
