"""The orderly end of a training: all ranks stop after the same step, whose state is in a checkpoint."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Self

from . import rank
from .resume_command import resume_command
from .signals import Interrupted

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
        try:
            return cls(*json.loads((folder / STOPPED).read_text(encoding="utf-8")))
        except OSError:
            return None
