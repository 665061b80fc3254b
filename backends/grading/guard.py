"""What a submission may not do to the machine: start processes, send signals, change others' files.

This keeps mistakes and plain tricks from passing or doing harm. It is no wall: a program that wants out
of Python gets out. Grade strangers in a container.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
STARTS = ("os.fork", "os.forkpty", "os.exec", "os.posix_spawn", "os.spawn", "os.system", "subprocess.Popen")
REFUSED = {
    **dict.fromkeys(STARTS, "start other processes"),
    **dict.fromkeys(("os.kill", "os.killpg"), "send signals"),
    **dict.fromkeys(("socket.connect", "socket.bind", "socket.sendto"), "use the network"),
    "ctypes.dlopen": "load other programs' code",
}
CHANGES = (
    "os.remove",
    "os.rmdir",
    "os.rename",
    "os.link",
    "os.symlink",
    "os.truncate",
    "os.chmod",
    "os.chown",
)


def forbid(folder: Path) -> None:
    """From now on this process starts no other, and writes and deletes in ``folder`` only."""
    import ctypes  # noqa: F401  what loads other code has done so before it is forbidden

    home = os.path.realpath(folder)

    def inside(path: Any) -> bool:
        if isinstance(path, int):
            return True  # it was opened under this rule, or before
        real = os.path.realpath(os.fsdecode(path))
        return real.startswith(home + os.sep) or real == os.devnull

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in REFUSED:
            raise PermissionError(f"a submission may not {REFUSED[event]} ({event})")
        if event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITING:
            if not inside(arguments[0]):
                raise PermissionError(f"a submission may write in its own folder only, not {arguments[0]}")
        elif event in CHANGES:
            for path in (x for x in arguments[:2] if isinstance(x, str | bytes | os.PathLike)):
                if not inside(path):
                    raise PermissionError(f"a submission may not change files ({event} of {path})")

    sys.addaudithook(hook)
