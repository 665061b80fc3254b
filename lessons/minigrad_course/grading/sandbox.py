"""The sandbox from outside: which protections this machine has, and how a process in it ended.

The worker enters the sandbox (worker/sandbox.py). `protections` tries it.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

# An interpreter that knows the standard library alone, to which `worker_paths` are given
ISOLATED = (sys.executable, "-P", "-s", "-S", "-c")
PROBE = """
import json, sys
sys.path += json.loads(sys.argv[1])
from worker import sandbox
sandbox.preload([])
print(json.dumps(sandbox.enter(448, 10)))
"""
PROBE_SECONDS = 60


@cache
def protections() -> tuple[str, ...]:
    """The protections that work on this machine: a process enters the sandbox and reports them."""
    with tempfile.TemporaryDirectory(prefix="minigrad-sandbox-") as folder:
        probe = subprocess.run(
            [*prefix(), *ISOLATED, PROBE, worker_paths()],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=PROBE_SECONDS,
        )
    names = json.loads(probe.stdout) if probe.returncode == 0 else []
    return (*names, *(["namespaces"] if prefix() else []))


def worker_paths() -> str:
    """The folders of the package worker and of the packages that this process imports, as JSON."""
    folders = [Path(__file__).parent, *(Path(folder) for folder in sys.path if folder)]
    return json.dumps([str(folder.resolve()) for folder in folders])


def weakness() -> str:
    """Where the system hides no files from a submission, a sentence that says so; else empty."""
    if any(name.startswith(("Landlock", "seccomp")) for name in protections()):
        return ""
    return (
        "This machine has neither Landlock nor seccomp: only Python's own hook keeps a submission from the "
        "files of the grader and the library. Grade strangers in a container."
    )


def describe_exit(status: int | None, seconds: float) -> str:
    """In words, how a process ended before there was a verdict; ``status`` None where its time ran out."""
    if status is None:
        return f"did not end in {seconds:g} s, and was ended"
    if status in (-signal.SIGXCPU, 128 + signal.SIGXCPU):
        return f"computed for more than {seconds:g} s"
    if status in (-signal.SIGKILL, 128 + signal.SIGKILL):
        return "was ended by the system; did it take all the memory, or compute without end?"
    if status < 0:
        return f"the process was ended by signal {-status} ({signal.Signals(-status).name})"
    return f"the process ended with status {status} before there was a verdict; does it call exit?"


# Namespaces: processes, network and shared memory of its own; the ways with the most come first

UNSHARE = ("unshare", "--fork", "--kill-child", "--pid", "--net", "--ipc")
AS_USER = ("--user", "--map-current-user")
WAYS = ((*UNSHARE, *AS_USER, "--mount-proc"), (*UNSHARE, *AS_USER), (*UNSHARE, "--mount-proc"), UNSHARE)


@cache
def prefix() -> tuple[str, ...]:
    """The words before a command that give its process namespaces of its own; empty where none work."""
    if sys.platform != "linux" or not shutil.which("unshare"):
        return ()
    for way in WAYS:
        if subprocess.run([*way, "true"], capture_output=True, check=False).returncode == 0:
            return (*way, "--")
    return ()
