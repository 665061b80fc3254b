"""What a submission may not do: start processes, send signals, change others' files, look at its callers.

This keeps mistakes and plain tricks from passing or doing harm. It is no wall: a program that wants out
of Python gets out. Grade strangers in a container.
"""

from __future__ import annotations

import inspect
import os
import sys
import traceback
from pathlib import Path
from types import FrameType
from typing import Any

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
STARTS = ("os.fork", "os.forkpty", "os.exec", "os.posix_spawn", "os.spawn", "os.system", "subprocess.Popen")
REFUSED = {
    **dict.fromkeys(STARTS, "start other processes"),
    **dict.fromkeys(("os.kill", "os.killpg"), "send signals"),
    **dict.fromkeys(("socket.connect", "socket.bind", "socket.sendto"), "use the network"),
    "ctypes.dlopen": "load other programs' code",
}
# What leads to the variables of those who call, which know the right result
LOOKS = (
    *("sys._getframe", "sys._current_frames", "sys.settrace", "sys.setprofile"),
    *("gc.get_objects", "gc.get_referrers", "gc.get_referents"),
    *("tb_frame", "gi_frame", "cr_frame", "ag_frame"),
)
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


def forbid(folder: Path, submission: str) -> None:
    """From now on this process starts no other, writes and deletes in ``folder`` only.

    The file ``submission`` does not get hold of a frame, and so of its callers' variables.
    """
    import ctypes  # noqa: F401  what loads other code has done so before it is forbidden

    home = os.path.realpath(folder)

    def inside(path: Any) -> bool:
        if isinstance(path, int):
            return True  # it was opened under this rule, or before
        real = os.path.realpath(os.fsdecode(path))
        return real.startswith(home + os.sep) or real == os.devnull

    def asks(frame: FrameType | None, helpers: tuple[str, ...]) -> bool:
        while frame is not None and frame.f_code.co_filename in helpers:
            frame = frame.f_back
        return frame is not None and frame.f_code.co_filename == submission

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        attribute = event == "object.__getattr__"
        looks = arguments[1] if attribute else event
        if looks in LOOKS:
            if looks == "sys._getframe" and arguments[0].f_code is own:
                return  # this hook's own question
            # what prints a traceback may look at it, whoever asks for that
            helpers = (inspect.__file__,) if attribute else (inspect.__file__, traceback.__file__)
            if asks(sys._getframe().f_back, helpers):
                raise PermissionError(f"a submission may not look at what calls it ({looks})")
            return
        if event in REFUSED:
            raise PermissionError(f"a submission may not {REFUSED[event]} ({event})")
        if event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITING:
            if not inside(arguments[0]):
                raise PermissionError(f"a submission may write in its own folder only, not {arguments[0]}")
        elif event in CHANGES:
            for path in (x for x in arguments[:2] if isinstance(x, str | bytes | os.PathLike)):
                if not inside(path):
                    raise PermissionError(f"a submission may not change files ({event} of {path})")

    own = hook.__code__
    sys.addaudithook(hook)
