"""How the process that runs a submission is started: the one place where a fence is put around it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from dataclasses import dataclass

from ..launch.launch import THREAD_VARIABLES
from ..launch.supervise import MARK
from .fence import prefix
from .settings import Settings

PRINTED = 15 * 2**20  # bytes; the file for a judge's output is a little longer
DRAINING = 1.0  # seconds
VARIABLES = {  # what Python and NumPy need to start; others may hold what is nobody's business
    *(MARK, *THREAD_VARIABLES, "PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONHASHSEED", "SYSTEMROOT"),
    *(
        "PYTHONDONTWRITEBYTECODE",
        "LANG",
        "LC_ALL",
        "HOME",
        "TMPDIR",
        "MPLCONFIGDIR",
        "MPLBACKEND",
        "VIRTUAL_ENV",
    ),
}


@dataclass(frozen=True)
class PlayerProcess:
    """The process, and the thread that passes on what it prints."""

    process: subprocess.Popen[bytes]
    echo: threading.Thread

    def close(self) -> None:
        """End it, and wait until all that it has printed is passed on."""
        self.process.kill()
        self.echo.join(DRAINING)


def start_player(control: socket.socket, settings: Settings) -> PlayerProcess:
    """Start ``player``, which forks at the word of who holds the other end of ``control``.

    It has this process's folder, a few of its variables, a pipe for what it prints, and nothing else of it.
    """
    line = [sys.executable, "-m", "backends.grading.player", str(control.fileno()), settings.write()]
    process = subprocess.Popen(
        [*prefix(), *line],
        env={name: value for name, value in os.environ.items() if name in VARIABLES},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        pass_fds=[control.fileno()],
    )
    assert process.stdout is not None
    echo = threading.Thread(target=pass_on, args=(process.stdout.fileno(),), name="echo", daemon=True)
    echo.start()
    return PlayerProcess(process, echo)


def pass_on(pipe: int) -> None:
    """Write what is printed to this process's own output, the first so many bytes; then nobody reads it."""
    left = PRINTED
    while left > 0 and (data := os.read(pipe, min(left, 2**16))):
        os.write(1, data)
        left -= len(data)
    if left == 0:
        os.close(pipe)
