"""The console on which commands print, also where mpiexec's pipe stands before the terminal."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from rich.console import Console

from ..launch.terminal import columns
from ..process.rank import number


def new_console(**settings: Any) -> Console:
    """A console for stdout; on a rank that mpiexec started, one for the terminal that its pipe leads to."""
    width = columns()
    if width is None:
        # Open MPI gives each rank a terminal.
        no_terminal = number() is not None and "FORCE_COLOR" not in os.environ
        return Console(force_terminal=False if no_terminal else None, **settings)
    return Console(force_terminal=True, width=width, **settings)


def print_paths(console: Console, **paths: Path | None) -> None:
    """A line for each path that is not None, which stays one line on a narrow terminal, in one color."""
    for name, path in paths.items():
        if path is not None:
            console.print(f"{name}: {path}", highlight=False, markup=False, soft_wrap=True)
