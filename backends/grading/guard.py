"""What Python itself refuses a submission: the second line, where the system has few fences of its own."""

from __future__ import annotations

import os
import sys
from typing import Any

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# By how their names begin, what starts processes, sends signals, changes files, uses the network or memory
FAMILIES = (
    *("ctypes.", "fcntl.", "ftplib.", "http.", "mmap.", "os.", "pty.", "resource.", "shutil.", "signal."),
    *("smtplib.", "socket.", "sqlite3.", "subprocess.", "syslog.", "tempfile.", "urllib.", "webbrowser."),
)
HARMLESS = ("os.fwalk", "os.listdir", "os.scandir", "os.walk")


def forbid() -> None:
    """From now on this process starts no other, sends no signal, writes no file and uses no network.

    It keeps plain programs from it. One that finds its way to memory or to compiled code is not kept.
    """

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event.startswith(FAMILIES) and event not in HARMLESS:
            raise PermissionError(f"a submission may not use {event}")
        if event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITING:
            raise PermissionError("a submission may not write files")

    sys.addaudithook(hook)
