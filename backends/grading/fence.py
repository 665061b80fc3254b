"""The fence around the process that runs a submission: what it can use of the machine, and what not.

``python -m backends.grading.fence`` goes behind it and writes what holds, which `fences` reads.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path

from .guard import forbid
from .landlock import read_only
from .limits import limit
from .refusal import ALLOWED
from .system_calls import filter_system_calls

PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS = 4, 38
LIBRARY = Path(__file__).parents[2]
# What Python reads when it imports a module, and a shared library with it
READ = (
    *(Path(folder) for folder in (sys.prefix, sys.base_prefix)),
    *(LIBRARY / package for package in ("minigrad", "backends")),
    *(
        Path(name)
        for name in ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/etc/ld.so.cache")
    ),
    *(Path(name) for name in ("/dev/null", "/dev/urandom")),
)
USUAL = ("encodings.unicode_escape", "linecache", "traceback", "unicodedata")  # what Python imports by itself
# How a process is started with namespaces of its own: processes, network, shared memory; the most first
UNSHARE = ("unshare", "--fork", "--kill-child", "--pid", "--net", "--ipc")
AS_USER = ("--user", "--map-current-user")
WAYS = (
    (*UNSHARE, *AS_USER, "--mount-proc"),
    (*UNSHARE, *AS_USER),
    (*UNSHARE, "--mount-proc"),
    UNSHARE,
)
PROBE_SECONDS = 60


def prepare(modules: Iterable[str]) -> None:
    """Import what a submission may, and ``modules``: behind the fence there may be no file to open."""
    for name in (*ALLOWED, *USUAL, *modules):
        with suppress(ImportError):
            importlib.import_module(name)
    with suppress(ImportError, RuntimeError, OSError, AttributeError):
        importlib.import_module("pyseccomp")  # it looks for libseccomp, by a process


def enter(mebibytes: int, seconds: float, descriptors: Iterable[int] = ()) -> list[str]:
    """Go behind the fence, for good, before a submission is loaded; what holds from now on.

    ``descriptors`` stay open beside 0, 1 and 2. Call it from the only thread there is, after `prepare`. A
    fence that the system has not is left out.
    """
    kept = sorted({0, 1, 2, *descriptors})
    for low, high in zip(kept, [*kept[1:], os.sysconf("SC_OPEN_MAX")], strict=True):
        os.closerange(low + 1, high)
    held = limit(mebibytes, seconds)
    if sys.platform == "linux":
        held += linux()
    forbid()
    return [*held, "audit hook"]


def linux() -> list[str]:
    """The fences that Linux has."""
    prctl = ctypes.CDLL(None).prctl
    held = []
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)  # nobody looks at its memory, nor it by /proc
    if prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0:
        held.append("no new privileges")
        if version := read_only(READ):
            held.append(f"Landlock {version}")
        if filter_system_calls(reading=bool(version)):
            held.append("seccomp")
    return held


@cache
def prefix() -> tuple[str, ...]:
    """What stands before the command of a fenced process, so that it has namespaces of its own."""
    if sys.platform != "linux" or not shutil.which("unshare"):
        return ()
    for way in WAYS:
        if subprocess.run([*way, "true"], capture_output=True, check=False).returncode == 0:
            return (*way, "--")
    return ()


@cache
def fences() -> tuple[str, ...]:
    """What holds on this machine: a process goes behind the fence and says it."""
    with tempfile.TemporaryDirectory(prefix="minigrad-fence-") as folder:
        found = subprocess.run(
            [*prefix(), sys.executable, "-m", "backends.grading.fence"],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=PROBE_SECONDS,
        )
    held = json.loads(found.stdout) if found.returncode == 0 else []
    return (*held, *(["namespaces"] if prefix() else []))


if __name__ == "__main__":
    prepare([])
    print(json.dumps(enter(448, 10)))
