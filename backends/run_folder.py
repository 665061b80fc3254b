"""The folder of one training under ``runs/``: made at the first write, so that none is left empty."""

from __future__ import annotations

import json
import os
import secrets
import time
from pathlib import Path
from typing import Any

import numpy as np

from . import rank
from .comm import Comm, broadcast
from .training import write_json

EVERY = 1.0  # seconds between two writings of the figures


class RunFolder:
    """All ranks of ``comm`` construct it, and know the same folder: whoever is left may write the figures.

    ``kept`` says in words what is in it. Raises OSError, before any work is done, where it cannot be written.
    """

    def __init__(self, comm: Comm, name: str, parent: Path = Path("runs")):
        if comm.rank == 0 and not os.access(parent if parent.exists() else parent.absolute().parent, os.W_OK):
            raise OSError(f"cannot write into {parent.absolute()}; train in a folder that you may write")
        drawn = np.array([int(time.time()), secrets.randbits(62)])
        started, token = (drawn if comm.size == 1 else broadcast(comm, drawn)).tolist()
        self.run = f"{token:016x}"
        stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(started))
        self.parent, self.name = parent, f"{stamp}-{name}"
        self.kept = "nothing was kept, the first epoch had not ended"
        self.written = -np.inf

    @property
    def path(self) -> Path:
        """The folder, made where it is not there; that of another run of this second is left alone."""
        for i in range(1000):
            path = self.parent / (self.name + (f"-{i}" if i else ""))
            try:
                path.mkdir(parents=True)
            except FileExistsError:
                if not self.is_own(path):
                    continue
            return path
        raise FileExistsError(f"{self.parent} already holds a thousand runs of this second; clear it")

    def is_own(self, path: Path) -> bool:
        try:
            return json.loads((path / "metrics.json").read_text()).get("run") == self.run
        except (OSError, ValueError):
            return False

    def write(self, metrics: dict[str, Any]) -> Path:
        """Write the figures; the folder."""
        path = self.path
        write_json(path / "metrics.json", {**metrics, "run": self.run})
        self.written = time.monotonic()
        self.kept = f"the figures of its first {len(metrics['losses'])} steps are in {path / 'metrics.json'}"
        rank.note("kept", self.kept)
        return path

    def write_now_and_then(self, metrics: dict[str, Any]) -> None:
        """Write the figures so far, unless that was done within this second."""
        if time.monotonic() - self.written > EVERY:
            self.write(metrics)
