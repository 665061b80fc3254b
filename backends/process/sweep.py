"""Cleans up after a job: ends its processes, found by a mark in their variables, and frees shared memory.

``python -I -S sweep.py FOLDER START`` waits for a byte on its input. If the input closes without one, the
process that started the job was killed; then this ends the job, marked with its folder, and removes that. It
imports only Python's own library.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

MARK = "MINIGRAD_JOB"  # the variable that marks a job's processes: MPICH's ranks leave every process group
# How the files in /dev/shm of MPICH, Open MPI, UCX and minigrad begin.
SHARED = ("mpich_shm_", "mpich_shar_tmp", "sm_segment.", "ucx_shm_posix_", "minigrad_shm_")
START = 0.3  # seconds within which a starting job maps a file that it has made
TIMEOUT = 2.0  # seconds to wait for killed processes to disappear
INTERVAL = 0.005  # seconds between two checks


def kill(mark: str) -> None:
    """Kill every process with the mark, also new ones, and wait until all have disappeared."""
    end = time.monotonic() + TIMEOUT
    while (pids := marked(mark)) and time.monotonic() < end:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(INTERVAL)


def marked(mark: str) -> list[int]:
    """This user's processes on this machine that carry ``mark``; none where there is no /proc.

    A zombie process has no variables, so it does not count.
    """
    pids = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or belongs to another user
            for variable in (folder / "environ").read_bytes().split(b"\0"):
                name, _, value = variable.partition(b"=")
                if name == MARK.encode() and mark.encode() in value.split(b":"):
                    pids.append(int(folder.name))
    return [pid for pid in pids if pid != os.getpid()]


def sweep_memory(start: float) -> None:
    """Remove the shared memory of an aborted job that began at ``start``.

    Its processes must have ended: a file that a process still maps counts as another job's.
    """
    left = []
    for prefix in SHARED:
        for file in Path("/dev/shm").glob(f"{prefix}*"):
            with suppress(OSError):
                status = file.stat()
                if status.st_uid == os.getuid() and status.st_mtime >= start:
                    left.append(file)
    if not left:
        return
    time.sleep(START)
    in_use = mapped()
    for file in left:
        if file.name not in in_use:
            file.unlink(missing_ok=True)


def mapped() -> str:
    """The names of all files that this user's processes map."""
    return "\n".join(map(text_of, Path("/proc").glob("[0-9]*/maps")))


def text_of(file: Path | str) -> str:
    """The text of a file; empty where it cannot be read, as a file of /proc on other systems than Linux."""
    try:
        return Path(file).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def watch(folder: str, start: float) -> None:
    """Wait until the launcher reports the end of the job; if the launcher is killed first, end the job."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    if not sys.stdin.buffer.read(1):
        kill(folder)
        time.sleep(START)  # a process that was just starting did not carry the mark yet
        kill(folder)
        sweep_memory(start)
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    watch(sys.argv[1], float(sys.argv[2]))
