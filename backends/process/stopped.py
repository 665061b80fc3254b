"""The orderly end of a training, whose state is in a checkpoint, and the command that goes on from there."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from . import rank
from .launcher import RANKS, size_under_mpiexec, step_tasks
from .signals import Interrupted
from .sweep import text_of

STOPPED = "stopped"  # the note in the job's folder: which signal, what is saved, and in which folder


class Stopped(Interrupted):
    """All ranks raise it after the same step; ``what`` says in words what is saved in ``checkpoints``.

    ``checkpoints`` is empty where nothing could be saved.
    """

    def __init__(self, number: int, what: str, checkpoints: str):
        way = f"; go on with: {resume_command(checkpoints)}" if checkpoints else ""
        super().__init__(number, what + way)
        self.what, self.checkpoints = what, checkpoints

    def report(self) -> None:
        """Let the launcher of this process print the line; print it here where there is no launcher."""
        if not rank.note(STOPPED, json.dumps([self.number, self.what, self.checkpoints])):
            print(self.line(), file=sys.stderr, flush=True)

    @classmethod
    def reported_in(cls, folder: Path) -> Self | None:
        """What the ranks of the job with this folder have reported; None if they have not stopped so."""
        text = text_of(folder / STOPPED)
        return cls(*json.loads(text)) if text else None


def resume_command(folder: Path | str) -> str:
    """This process's command line, going on from ``folder``; with mpiexec where the user wrote it."""
    start, size = [], size_under_mpiexec()
    if size is not None and RANKS not in os.environ:
        start = ["srun" if step_tasks() else "mpiexec", "-n", str(size)]
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
