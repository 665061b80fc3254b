"""The files that a command writes, and the folder of a training under ``runs/``.

The first write creates the folder, so no folder is ever empty.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np

from minigrad.files import replacement

from ..comm import Communicator, broadcast
from ..launch import rank
from ..launch.supervise import SAVED

FIGURES = "metrics.json"  # of a training, in its folder
MODEL = "model.safetensors"  # beside the figures
INTERVAL = 1.0  # seconds between two writes of the figures


class RunFolder:
    """All ranks of ``comm`` construct it with the same name, so any surviving rank can write the figures.

    Raises OSError at once where the folder cannot be written.
    """

    def __init__(self, comm: Communicator, name: str, parent: Path = Path("runs")):
        if comm.rank == 0 and not os.access(parent if parent.exists() else parent.absolute().parent, os.W_OK):
            raise OSError(f"cannot write into {parent.absolute()}; train in a folder that you may write")
        drawn = np.array([int(time.time()), secrets.randbits(62)])
        started, token = (drawn if comm.size == 1 else broadcast(comm, drawn)).tolist()
        self.run = f"{token:016x}"
        stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(started))
        self.parent, self.name = parent, f"{stamp}-{name}"
        self.file: Path | None = None
        self.written = -np.inf

    def is_own(self, path: Path) -> bool:
        try:
            return json.loads((path / FIGURES).read_text()).get("run") == self.run
        except (OSError, ValueError):
            return False

    def write(self, metrics: dict[str, Any]) -> Path:
        """Write the figures, and return their folder, which is created with the figures in it."""
        figures = {**metrics, "run": self.run}
        path, number = self.parent / self.name, 0
        while not self.write_into(path, figures):  # another run started in the same second
            number += 1
            path = self.parent / f"{self.name}-{number}"
        self.written = time.monotonic()
        return path

    def write_into(self, path: Path, figures: dict[str, Any]) -> bool:
        """Write the figures into ``path``, which is created if necessary; False where another run owns it."""
        if not path.exists():
            self.file = path / FIGURES
            rank.note(SAVED, str(self.file))
            return create(path, figures)
        if own := self.is_own(path):
            write_json(path / FIGURES, figures)
        return own

    def write_now_and_then(self, metrics: dict[str, Any]) -> None:
        """Write the figures so far, at most once a second."""
        if time.monotonic() - self.written > INTERVAL:
            self.write(metrics)


def create(path: Path, figures: dict[str, Any]) -> bool:
    """Create the folder with the figures in one step; False where another run has just created it."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.mkdir(parents=True, exist_ok=True)
        write_json(part / FIGURES, figures)
        os.rename(part, path)
    except OSError:
        if path.exists():
            return False
        raise
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return True


def check_writable(file: Path | None, flag: str = "--json") -> None:
    """Raise OSError unless ``file``, if there is one, can be written."""
    if file is None:
        return
    if file.is_dir() or not os.access(file.parent, os.W_OK):
        raise OSError(f"cannot write {file}: its folder must exist and be writable; name another with {flag}")


def write_json(file: Path, content: dict[str, Any]) -> None:
    """Write ``content``; if that fails, ``file`` stays as it was."""
    with replacement(file) as part:
        part.write_text(json.dumps(content, indent=1))
