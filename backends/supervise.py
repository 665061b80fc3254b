"""Running a command that starts processes of its own, and leaving none of them behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterable
from pathlib import Path

PASSED_ON = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
MARK = "MINIGRAD_JOB"  # the variable by which a job's processes are known: MPICH's ranks leave every group
PATIENCE = 5  # seconds to end by oneself
SHARED = ("mpich_shm_", "sm_segment.", "minigrad_shm_")  # how MPICH's, Open MPI's and our files begin
SETTLED = 0.3  # seconds after which a file that a starting job has made is mapped by it


class Signalled(BaseException):
    """This process was told to end."""


def supervise(command: list[str], variables: dict[str, str]) -> int:
    """Run ``command`` to its end, and end every process it leaves; its exit status, as a shell tells it.

    SIGINT, SIGTERM and SIGHUP are passed on; what has not ended 5 seconds later is killed.
    """
    mark, start = uuid.uuid4().hex, time.time()
    process = subprocess.Popen(command, env={**variables, MARK: mark}, start_new_session=True)

    def pass_on(number: int, _) -> None:
        raise Signalled(number)

    here = threading.current_thread() is threading.main_thread()
    before = {number: signal.signal(number, pass_on) for number in PASSED_ON} if here else {}
    try:
        status = process.wait()
    except Signalled as told:
        ignore(before)
        status = -told.args[0]
        end(process, told.args[0])
    finally:
        ignore(before)
        sweep(process, mark)
        sweep_memory(start)
        for number, handler in before.items():
            signal.signal(number, handler)
    return status if status >= 0 else 128 - status


def ignore(numbers: Iterable[int]) -> None:
    for number in numbers:
        signal.signal(number, signal.SIG_IGN)


def end(process: subprocess.Popen, number: int) -> None:
    """Pass the signal ``number`` on, and wait; mpiexec ends its ranks where it is given the time."""
    os.killpg(process.pid, number)
    try:
        process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        print(f"minigrad: the job did not end in {PATIENCE} s; it is killed", file=sys.stderr, flush=True)


def sweep(process: subprocess.Popen, mark: str) -> None:
    """Kill what is left of the job."""
    for pid in marked(mark):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def marked(mark: str) -> list[int]:
    """The processes, of this user and machine, that carry ``mark``; none where there is no /proc."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARK}={mark}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
        except OSError:  # ended meanwhile, or another user's
            continue
    return found


def sweep_memory(start: float) -> None:
    """Remove the shared memory, 2 MB and more, that an aborted job which began at ``start`` left."""
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
