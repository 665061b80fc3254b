"""The command line with which a training goes on from its checkpoints."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from .launcher import RANKS, launcher, step_tasks


def resume_command(folder: Path | str) -> str:
    """This process's command line, going on from ``folder``; with mpiexec where the user wrote it."""
    here = launcher()
    start = []
    if here is not None and here.size is not None and RANKS not in os.environ:
        start = ["srun" if step_tasks() else "mpiexec", "-n", str(here.size)]
    return shlex.join([*start, "minigrad", *resuming(sys.argv[1:], folder)])


def resuming(arguments: Sequence[str], folder: Path | str) -> list[str]:
    """The arguments of a command with ``--resume folder`` in the place of another ``--resume``.

    >>> resuming(["train", "--resume", "old", "--data", "2", "--checkpoint", "kept"], "kept")
    ['train', '--data', '2', '--checkpoint', 'kept', '--resume', 'kept']
    """
    return [*without("--resume", arguments), "--resume", str(folder)]


def without(option: str, arguments: Sequence[str]) -> list[str]:
    """The arguments of a command without an option and its value.

    >>> without("--resume", ["train", "--resume=old", "--data", "2", "--resume", "older"])
    ['train', '--data', '2']
    """
    others, rest = [], iter(arguments)
    for word in rest:
        if word == option:
            next(rest, None)
        elif not word.startswith(f"{option}="):
            others.append(word)
    return others
