"""The terminal that shows the output of a job: mpiexec collects it through pipes, so ranks cannot see it."""

from __future__ import annotations

import os
import shutil
import sys

TERMINAL = "MINIGRAD_TERMINAL"  # the variable that tells ranks how many columns the terminal has
ERASE_LINE = "\r\x1b[K"  # of a terminal: back to the first column, and erase what is on the line


def for_ranks() -> dict[str, str]:
    """The variable for ranks whose output this process shows; none where its own stdout is no terminal."""
    if sys.stdout is None or not sys.stdout.isatty():
        return {}
    return {TERMINAL: str(shutil.get_terminal_size().columns)}


def columns() -> int | None:
    """The columns of the terminal behind mpiexec's pipe; None where a launcher said nothing about one."""
    text = os.environ.get(TERMINAL, "")
    return int(text) if text.isdecimal() else None


def progress_end(variables: dict[str, str]) -> str:
    """What ends the progress bar of ranks with these ``variables``, before a message on stderr."""
    return ERASE_LINE if TERMINAL in variables and sys.stderr.isatty() else ""
