"""The files that a command writes, and the folder of a training under ``runs/``.

The first write creates the folder, so no folder is ever empty.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from itertools import count, takewhile
from pathlib import Path
from typing import Annotated, Any

import typer

from minigrad.files import replacement
from minigrad.metrics_log import MetricsLog, Record, first_and_last

from ..checkpoint.disk import REAL
from ..comm import Communicator
from ..comm.allgather_json import allgather_json
from ..launch.supervise import METRICS
from ..process import rank

LOG = "metrics.jsonl"  # of a training, in its folder, from its first step on
FIGURES = "metrics.json"  # at its end, beside the log
MODEL = "model.safetensors"
CURVES = "curves.png"
Json = Annotated[Path | None, typer.Option(help="also write the results to this JSON file")]


class RunFolder:
    """All ranks of ``comm`` construct it with the same name, so any surviving rank can write the figures.

    ``path`` is the folder once this rank has written into it. Raises OSError at once where the folder cannot
    be written.
    """

    def __init__(self, comm: Communicator, name: str, parent: Path = Path("runs")):
        if comm.rank == 0 and parent.is_symlink() and not parent.exists():
            target = os.readlink(parent)
            raise OSError(f"{parent} is a link to {target}, which is not there; make it, or remove {parent}")
        there = parent if parent.exists() else parent.absolute().parent
        if comm.rank == 0 and not (there.is_dir() and os.access(there, os.W_OK)):
            raise OSError(f"cannot write into {parent.absolute()}; train in a folder that you may write")
        started, self.run = allgather_json(comm, [int(time.time()), f"{secrets.randbits(62):016x}"])[0]
        stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(started))
        self.parent, self.name = parent, f"{stamp}-{name}"
        self.path: Path | None = None
        self.log: MetricsLog | None = None

    def append(self, records: list[Record]) -> None:
        """Append records to the log of the run, on one rank. The very first one also names the run."""
        if self.log is not None:
            self.log.append(records)
        elif records:
            self.path = self.folder(records)

    def write(self, metrics: dict[str, Any]) -> Path:
        """Write the figures of the whole run, and return their folder."""
        self.path = self.path or self.folder([{}])
        write_json(self.path / FIGURES, {**metrics, "run": self.run})
        return self.path

    def close(self) -> None:
        """Close the log of the run."""
        if self.log is not None:
            self.log.close()

    def folder(self, records: list[Record]) -> Path:
        """The folder of the run: the one that another rank made, or a new one whose log holds ``records``."""
        first, *others = records
        records = [{"run": self.run, **first}, *others]
        return next(path for path in self.paths() if self.is_own(path) or self.create(path, records))

    def find(self) -> Path | None:
        """The folder of the run, if any rank has made it."""
        return next(filter(self.is_own, takewhile(Path.exists, self.paths())), None)

    def paths(self) -> Iterator[Path]:
        """Where the folder may be; another run, which started in the same second, may have the first ones."""
        yield self.parent / self.name
        yield from (self.parent / f"{self.name}-{number}" for number in count(1))

    def is_own(self, path: Path) -> bool:
        """Whether the log in a folder is that of this run."""
        try:
            return first_and_last(path / LOG)[0].get("run") == self.run
        except (OSError, ValueError):
            return False

    def create(self, path: Path, records: list[Record]) -> bool:
        """Create the folder with its log in one step; False where there is one already."""
        part = path.with_name(f".{path.name}.{os.getpid()}.part")
        log = None
        try:
            part.mkdir(parents=True, exist_ok=True)
            log = MetricsLog(part / LOG, name=path / LOG)
            log.append(records)
            os.rename(part, path)
        except OSError:
            if log is not None:
                log.close()
            if path.exists():
                return False
            raise
        finally:
            shutil.rmtree(part, ignore_errors=True)
        self.log = log
        rank.note(METRICS, str(path / LOG))
        return True


def check_writable(file: Path | None, flag: str = "--json") -> None:
    """Raise OSError unless ``file``, if there is one, can be written."""
    if file is None:
        return
    is_stream = file.exists() and not file.is_file()  # a device or a pipe, which is written to
    place = file if is_stream else file.parent
    if file.is_dir() or not (is_stream or file.parent.is_dir()) or not os.access(place, os.W_OK):
        raise OSError(f"cannot write {file}: its folder must exist and be writable; name another with {flag}")


def check_outputs(**files: Path | None) -> None:
    """``check_writable`` for each file, by its flag's name; ValueError where two flags name one file."""
    flags: dict[str, str] = {}
    for flag, file in files.items():
        check_writable(file, f"--{flag}")
        if file is not None and (other := flags.setdefault(os.path.realpath(file), flag)) != flag:
            raise ValueError(f"--{other} and --{flag} would both write {file}; name two files")


def make_folder(folder: Path, purpose: str) -> None:
    """Make the folder of results, before the work; raises OSError where it cannot be written.

    ``purpose`` says in the error who writes there, as "lessons draw there".
    """
    try:
        REAL.make_folder(folder)
    except OSError as error:
        way_out = "run it in a folder that you may write"
        reason = f"cannot write into {folder.absolute()}: {error.strerror}"
        raise OSError(f"{reason}; {purpose}: {way_out}") from None


def write_json(file: Path, content: dict[str, Any]) -> None:
    """Write ``content``; if that fails, ``file`` stays as it was."""
    with replacement(file) as part:
        part.write_text(json.dumps(content, indent=1), encoding="utf-8")
