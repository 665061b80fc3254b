"""How the process that runs a submission is started: the one place where a fence is put around it."""

from __future__ import annotations

import socket
import subprocess
import sys

from .fence import prefix
from .settings import Settings


def start_player(control: socket.socket, settings: Settings) -> subprocess.Popen[bytes]:
    """Start ``player``, which forks at the word of who holds the other end of ``control``.

    It has this process's folder, environment and output, and nothing else of it.
    """
    line = [sys.executable, "-m", "backends.grading.player", str(control.fileno()), settings.write()]
    return subprocess.Popen([*prefix(), *line], stdin=subprocess.DEVNULL, pass_fds=[control.fileno()])
