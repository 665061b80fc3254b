"""The folder of one training under ``runs/``: made at the first write, so that none is left empty."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ..comm import Communicator, broadcast
from ..launch import rank
from ..launch.supervise import KEPT, kept_in
from .figures import FIGURES, write_json

EVERY = 1.0  # seconds between two writings of the figures


class RunFolder:
    """All ranks of ``comm`` construct it, and know the same folder: whoever is left may write the figures.

    Raises OSError, before any work is done, where it cannot be written.
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

    def paths(self) -> Iterator[Path]:
        """Where the folder is, or is to be: other runs of this second have taken the first of these names."""
        for i in range(1000):
            yield self.parent / (self.name + (f"-{i}" if i else ""))

    def is_own(self, path: Path) -> bool:
        try:
            return json.loads((path / FIGURES).read_text()).get("run") == self.run
        except (OSError, ValueError):
            return False

    def write(self, metrics: dict[str, Any]) -> Path:
        """Write the figures; the folder, which comes into being with them in it."""
        figures = {**metrics, "run": self.run}
        path = next(path for path in self.paths() if self.write_into(path, figures))
        self.written = time.monotonic()
        return path

    def write_into(self, path: Path, figures: dict[str, Any]) -> bool:
        """Write the figures into ``path``, made if need be; False where it is another run's."""
        if not path.exists():
            self.file = path / FIGURES
            rank.note(KEPT, str(self.file))
            return made(path, figures)
        if self.is_own(path):
            write_json(path / FIGURES, figures)
            return True
        return False

    @property
    def kept(self) -> str:
        """What is in the folder, in words."""
        return kept_in(self.file)

    def write_now_and_then(self, metrics: dict[str, Any]) -> None:
        """Write the figures so far, unless that was done within this second."""
        if time.monotonic() - self.written > EVERY:
            self.write(metrics)


def made(path: Path, figures: dict[str, Any]) -> bool:
    """Make the folder with its figures in it, at once; False where another run has just taken its name."""
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
