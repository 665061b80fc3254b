"""Ending what a job leaves: its processes, known by a mark in their variables, and its shared memory.

``python -I -S sweep.py MARK START FOLDER`` waits for a word on its input; where that is closed without one,
whoever started the job was killed, and this ends the job and removes its folder. It needs nothing but
Python's own library.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from pathlib import Path

MARK = "MINIGRAD_JOB"  # the variable by which a job's processes are known: MPICH's ranks leave every group
# How the files in /dev/shm of MPICH, Open MPI, UCX and minigrad begin.
SHARED = ("mpich_shm_", "mpich_shar_tmp", "sm_segment.", "ucx_shm_posix_", "minigrad_shm_")
SETTLED = 0.3  # seconds after which a file that a starting job has made is mapped by it
PATIENCE = 2.0  # seconds for killed processes to be gone
LOOK = 0.005  # seconds between two looks


def kill(mark: str) -> None:
    """Kill every process with the mark, also those that they start meanwhile, and wait until all are gone."""
    end = time.monotonic() + PATIENCE
    while (found := marked(mark)) and time.monotonic() < end:
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(LOOK)


def marked(mark: str) -> list[int]:
    """The processes, of this user and machine, that carry ``mark``; none where there is no /proc.

    One that has ended, and is not yet counted, has no variables.
    """
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            variables = (folder / "environ").read_bytes().split(b"\0")
        except OSError:  # ended meanwhile, or another user's
            continue
        for variable in variables:
            name, _, value = variable.partition(b"=")
            if name == MARK.encode() and mark.encode() in value.split(b":"):
                found.append(int(folder.name))
    return [pid for pid in found if pid != os.getpid()]


def sweep_memory(start: float) -> None:
    """Remove the shared memory that an aborted job which began at ``start`` left.

    Its processes must be gone: what one of them still has mapped is taken for another job's.
    """
    left = []
    for prefix in SHARED:
        for file in Path("/dev/shm").glob(f"{prefix}*"):
            try:
                found = file.stat()
            except OSError:
                continue
            if found.st_uid == os.getuid() and found.st_mtime >= start:
                left.append(file)
    if not left:
        return
    time.sleep(SETTLED)
    in_use = mapped()
    for file in left:
        if file.name not in in_use:
            file.unlink(missing_ok=True)


def mapped() -> str:
    """All that this user's processes have mapped."""
    texts = []
    for maps in Path("/proc").glob("[0-9]*/maps"):
        try:
            texts.append(maps.read_text())
        except OSError:
            continue
    return "\n".join(texts)


def watch(mark: str, start: float, folder: str) -> None:
    """Wait until the launcher says that the job has ended; where it is killed before, end the job."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    if not sys.stdin.buffer.read(1):
        kill(mark)
        time.sleep(SETTLED)  # what was just being started had no mark of its own yet
        kill(mark)
        sweep_memory(start)
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    watch(sys.argv[1], float(sys.argv[2]), sys.argv[3])
