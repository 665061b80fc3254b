"""Runs a command that starts processes, and leaves none of them behind."""

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
from typing import IO, Any, NamedTuple

from minigrad.metrics_log import first_and_last

from ..process import rank, sweep
from ..process.hang_report import WAY_OUT, HangReport, RankState, place_of_main_thread, write_stacks
from ..process.signals import SIGNALS, Interrupted, uninterrupted
from ..process.stop_request import StopRequest
from ..process.stopped import Stopped, resume_command
from ..process.sweep import MARK
from .terminal import progress_end

METRICS = "metrics"  # the note in the job's folder: the path of the metrics log that a training writes
INTERVAL = 0.05  # seconds between two checks of the job
GRACE = 2.5  # seconds that a user's script has to end by itself after a signal
LOST = 255  # mpiexec's status when its proxy, or a process that the proxy was starting, has disappeared
RANK_TIMEOUT = 3.0  # seconds within which a rank's error ends the job, once MPI has started
PROXY_TIMEOUT = 1.0  # seconds within which mpiexec ends after one of its proxies
BANNER = re.compile(rb"={60,}\n=   BAD TERMINATION.*?FAQ page for debugging suggestions\n", re.DOTALL)
PARTIAL_BANNER = re.compile(  # the banner arrives in pieces
    rb"(?<![^\n])=+\Z|={60,}\n(=[^\n]{0,40})?\Z|={60,}\n=   BAD TERMINATION.*\Z", re.DOTALL
)
CUT_BANNER = re.compile(  # mpiexec was killed while it wrote the banner
    rb"={60,}\n=   BAD TERMINATION[^\n]*(\n=[^\n]*)*(\nYOUR APPLICATION[^\n]*)?(\nThis typically[^\n]*)?"
    rb"(\n[^\n]+\Z|\n|\Z)"
)
TERMINATED = 128 + signal.SIGTERM
NAMES = {128 + number: signal.Signals(number).name for number in (*SIGNALS, signal.SIGKILL)}


class Ending(NamedTuple):
    """How a job ended: its exit status as a shell reports it, and, where no rank said why, the reason.

    ``saved`` says in words what it has saved. It has ``crashed`` if one of its processes died before its
    program ended: killed by a signal that asks for no end, or aborted.
    """

    status: int
    reason: str
    saved: str
    crashed: bool
    progress_end: str

    def report(self) -> int:
        """Print the reason, if there is one, and what is saved; returns the status."""
        if self.reason:
            words = f"{self.progress_end}minigrad: {self.reason}; {self.saved}"
            print(words, file=sys.stderr, flush=True)
        return self.status


@dataclass
class Job:
    """A command whose processes carry ``folder`` in MARK, and whose ranks note their end in that folder."""

    program: str
    folder: Path
    process: subprocess.Popen
    progress_end: str = ""  # written before a message
    proxies: dict[int, float] = field(default_factory=dict)  # the time at which each was last running
    reason: str = ""  # why it ended, where no rank says so
    passed_on: bool = False  # whether it has heard of a request to stop

    def wait(self, seconds: float | None, request: StopRequest) -> int:
        """The status with which the job ended or must end; raises TimeoutExpired after ``seconds``.

        A request to stop is passed on to ranks that save their state first, and to ranks on other machines,
        whose notes are not here. With other ranks it acts as if there were no request.
        """
        start = time.monotonic()
        while True:
            with suppress(subprocess.TimeoutExpired):
                return self.status(self.process.wait(INTERVAL))
            if (status := self.over()) is not None:
                return status
            if request.number is not None and not self.passed_on:
                if not (self.notes(rank.SAVES) or self.is_elsewhere()):
                    request.act(request.number)
                self.send(request.number)
                self.passed_on = True
            if seconds is not None and time.monotonic() - start > seconds:
                raise subprocess.TimeoutExpired(self.process.args, seconds)

    def over(self) -> int | None:
        """The status of a job that runs but cannot go on, after a message about it; else None."""
        if end := self.first_end():
            rank, status, age = end
            by_mpiexec = status == TERMINATED and not self.proxies  # perhaps, by Open MPI's, which then ends
            if status in NAMES and (not by_mpiexec or age > PROXY_TIMEOUT):
                self.reason = f"rank {rank} was interrupted by {NAMES[status]}, and with it the job ends"
                return status
            if age > RANK_TIMEOUT:
                self.reason = f"rank {rank} has ended with status {status}, and with it the job ends"
                return status
        now = time.monotonic()
        self.proxies |= dict.fromkeys(proxies_of(self.process.pid), now)
        if any(now - time_running > PROXY_TIMEOUT for time_running in self.proxies.values()):
            self.reason = "mpiexec's hydra_pmi_proxy was killed, and with it the job ends"
            return 128 + signal.SIGKILL
        return None

    def status(self, status: int) -> int:
        """The exit status as a shell reports it. MPICH's mpiexec exits with the number of a rank's signal.

        Ranks note every other status than 0, so a status without a note is the signal that ended a rank.
        Open MPI's mpiexec then ends the other ranks by SIGTERM, and these do note it.
        """
        end = self.first_end() if status else None
        if end and end[1] == TERMINATED and status - 128 in set(signal.Signals) - {signal.SIGTERM}:
            silent = sorted(self.notes("pid").keys() - self.notes("end").keys())
            who = f"rank {silent[0]}" if len(silent) == 1 else "a rank"
        elif end:
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
        self.reason = f"{who} was ended by {signal.Signals(status - 128).name}, and with it the job"
        return status

    def crashed(self, status: int) -> bool:
        """Whether a process of the job died before its program ended.

        A rank notes every end of its program, and also that it lost another rank.
        """
        if status == 0 or self.notes(rank.LOST):
            return status != 0
        killed = status > 128 and status not in {128 + number for number in SIGNALS}
        return killed or (self.first_end() is None and bool(self.notes("pid")))

    def is_elsewhere(self) -> bool:
        """Whether srun has started all ranks on other machines, as from the login node of a cluster."""
        return self.program == "srun" and not self.rank_processes()

    def saved(self) -> str:
        """The results that the job has saved, in words."""
        log, folder = self.text_of(METRICS), self.text_of(f"{rank.SAVES}.0")
        if not log and self.is_elsewhere():
            return "nothing was kept, unless a rank on another machine says so"
        return saved_in(Path(log) if log else None, Path(folder) if folder else None)

    def killed(self, number: int) -> Interrupted:
        """Kill the job, whose log can then be counted; what interrupted it, with what it has saved."""
        kill_job(self.process, str(self.folder))
        sys.stderr.write(self.progress_end)
        return Interrupted(number, self.saved())

    def report_hang(self) -> None:
        """Where a wait timed out, say what each rank did then, and write the stacks beside the metrics."""
        notes = {number: self.waits_of(number) for number in sorted(self.notes("pid"))}
        if not any(notes.values()):
            return
        states, stacks = [], []
        for number, waits in notes.items():
            text = self.text_of(f"stacks.{number}").strip()
            stacks.append(f"rank {number}\n{text or 'It wrote no stack.'}\n")
            over, stopped = number in self.notes("left"), number in self.notes(rank.STOPPED)
            if waits and not stopped:
                states += waits
            else:
                place = "" if stopped else place_of_main_thread(text, rank.__file__)
                states.append(RankState(number, f"rank {number}", place=place, over=over and not stopped))
        report, log = HangReport(states, "\n".join(stacks)), self.text_of(METRICS)
        what = "a wait for another rank took longer than MINIGRAD_TIMEOUT"
        text = f"{self.progress_end}minigrad: {what}:\n{report.text()}; {WAY_OUT}"
        print(text, file=sys.stderr, flush=True)
        write_stacks(report.stacks, Path(log).parent if log else None)

    def waits_of(self, number: int) -> list[RankState]:
        """What a rank, and then its backgrounds, waited for when it gave up."""
        texts = [self.text_of(f"wait.{number}.{thread}") for thread in ("main", "background")]
        notes = [json.loads(text) for text in texts if text]
        return [RankState(number, n["name"], n["wait"], tuple(n["peers"]), n["since"]) for n in notes]

    def notes(self, name: str) -> dict[int, Path]:
        """The files of this note in the job's folder, by the ranks that wrote it."""
        return {int(file.suffix[1:]): file for file in self.folder.glob(f"{name}.*[0-9]")}

    def text_of(self, note: str) -> str:
        """The text of a note in the job's folder; empty where there is none."""
        return sweep.text_of(self.folder / note)

    def first_end(self) -> tuple[int, int, float] | None:
        """The first rank that noted its end: its number, its status, and the seconds since then."""
        ends = []
        for number, file in self.notes("end").items():
            with suppress(OSError, ValueError):
                ends.append((file.stat().st_mtime, number, int(file.read_text(encoding="utf-8"))))
        if not ends:
            return None
        at, number, status = min(ends)
        return number, status, time.time() - at

    def send(self, number: int) -> None:
        """Send the signal to all ranks that have begun, or to the only process."""
        alone = [] if self.program == "mpiexec" else [self.process.pid]
        if self.is_elsewhere():
            number = signal.SIGUSR1  # srun passes it on; measured: at SIGTERM and SIGHUP it kills its tasks
        for pid in self.rank_processes() or alone:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def rank_processes(self) -> list[int]:
        """The ranks' processes on this machine; none before they begin."""
        return [int(file.read_text(encoding="utf-8")) for file in self.notes("pid").values()]


def supervise(command: list[str], variables: dict[str, str], **settings: Any) -> int:
    """Run ``command`` with the settings of ``ending_of``, and report its end; returns the exit status."""
    return ending_of(command, variables, **settings).report()


def ending_of(
    command: list[str],
    variables: dict[str, str],
    *,
    grace: float = 0.0,
    seconds: float | None = None,
    output: IO | None = None,
    shown: Callable[[Iterable[bytes]], Iterable[bytes]] = iter,
    saves: bool = False,
) -> Ending:
    """Run ``command``, and end every process that it leaves; returns how it ended.

    An interrupting signal is passed on to the command, which has ``grace`` seconds to end by itself before
    it is killed. If this process is killed, the job ends too. ``output`` is a file for all that the command
    prints; else ``shown`` may change it on its way to stdout. Raises TimeoutExpired after ``seconds``.
    With ``saves``, ranks that save their state at a signal have the time for it that ``StopRequest`` gives,
    and this raises Stopped.
    """
    with (
        tempfile.TemporaryDirectory(prefix="minigrad-job-", ignore_cleanup_errors=True) as folder,
        relay(shown) if output is None else nullcontext(output) as stdout,
        supervised(command, variables, folder, stdout=stdout, stderr=output) as job,
    ):
        try:
            with StopRequest() if saves else nullcontext(StopRequest()) as request:
                status = job.wait(seconds, request)
            if status and output is None:
                job.report_hang()
        except Interrupted as interruption:
            if grace:
                job.send(interruption.number)
                if job.program != "mpiexec" or job.rank_processes():  # else all still load Python
                    with suppress(subprocess.TimeoutExpired):
                        job.process.wait(grace)
            raise job.killed(interruption.number) from None
        if (stopped := Stopped.reported_in(job.folder)) is not None:
            sys.stderr.write(job.progress_end)
            raise stopped
        if request.number is not None and (status or not job.passed_on):  # else it ended well by itself
            raise job.killed(request.number)
        return Ending(status, job.reason, job.saved(), job.crashed(status), job.progress_end)


@contextmanager
def supervised(command: list[str], variables: dict[str, str], folder: str, **settings: Any) -> Iterator[Job]:
    """Start ``command`` with these settings of Popen; at the end, kill its processes and free their memory.

    ``folder`` marks the job's processes. If this process is killed or interrupted before all of them have
    ended, another one ends them, and removes the folder.
    """
    start, outer = time.time(), os.environ.get(MARK)
    variables = {**variables, MARK: f"{outer}:{folder}" if outer else folder}
    watch = [sys.executable, "-I", "-S", sweep.__file__, folder, str(start)]
    null, all_ended = subprocess.DEVNULL, False
    watcher: subprocess.Popen[bytes] | None = None
    try:  # both are started uninterrupted, so they are always known, and can be ended
        watcher = uninterrupted(
            subprocess.Popen, watch, stdin=subprocess.PIPE, stdout=null, stderr=null, start_new_session=True
        )
        process = uninterrupted(subprocess.Popen, command, env=variables, start_new_session=True, **settings)
        try:
            yield Job(Path(command[0]).name, Path(folder), process, progress_end(variables))
        finally:
            kill_job(process, folder)
            sweep.sweep_memory(start)
            all_ended = True
    finally:
        if watcher is not None:
            with suppress(OSError, subprocess.TimeoutExpired):
                watcher.communicate(b"." if all_ended else b"", timeout=2)


@contextmanager
def relay(shown: Callable[[Iterable[bytes]], Iterable[bytes]]) -> Iterator[int]:
    """A descriptor that copies to stdout, without MPICH's nine lines about a rank's end; ours is one line."""
    reader, writer = os.pipe()

    def pass_on() -> None:
        with open(reader, "rb", buffering=0) as source:
            for text in shown(without_banner(iter(lambda: source.read(1 << 16), b""))):
                with suppress(OSError):  # nobody reads it, as behind head: the job goes on all the same
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
    yield CUT_BANNER.sub(b"", text)


def kill_job(process: subprocess.Popen, mark: str) -> None:
    """Kill the job's processes, mpiexec first, because it would report the end of its ranks."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    sweep.kill(mark)
    process.wait()


def proxies_of(pid: int) -> list[int]:
    """The running proxies that MPICH's mpiexec started; none where there is no /proc, or with Open MPI."""
    children = sweep.text_of(f"/proc/{pid}/task/{pid}/children").split()
    stats = {int(child): rank.stat_of(child) for child in children}
    return [child for child, (name, state) in stats.items() if "hydra" in name and state != "Z"]


def saved_in(log: Path | None, folder: Path | None = None) -> str:
    """What a training has saved, in words, and how it goes on from a checkpoint.

    It is known from its metrics log, and from the ``folder`` of its checkpoints, which may be older than it.
    """
    from ..checkpoint.checkpoints import newest_step  # which loads NumPy

    try:
        first, last = first_and_last(log) if log else ({}, {})
    except (OSError, ValueError):
        first, last = {}, {}
    steps, folder = last.get("step"), folder or first.get("checkpoints")
    newest = newest_step(Path(folder)) if folder else None
    if not steps and newest is None:
        return "nothing was kept, the first step had not ended" if log else "nothing was kept"
    words = [f"the figures of its first {steps} steps are in {log}"] if steps else []
    if newest is not None and folder:
        words += [] if steps else [f"step {newest[1]} is saved in {Path(folder) / newest[0]}"]
        words.append(f"go on with: {resume_command(str(folder))}")
    return "; ".join(words)
