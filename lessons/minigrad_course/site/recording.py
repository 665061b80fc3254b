"""A run of a lesson, cell by cell: what each cell printed, and which pictures it drew.

``python -m minigrad_course.site.recording LESSON.py`` runs the cells in order in one process, as
``python LESSON.py`` does, and writes RESULT into the current folder, where the lesson's pictures are, too.
``Recording.load`` starts such a process, unless the folder has the run of the same sources: times that a
lesson measures are those of that run, and a site that is built again shows the same.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from backends.launch.launch import cores
from minigrad.files import replacement

from .. import HERE, ROOT
from ..lesson.questions import ANSWERS, QUESTIONS, answered, check, questions_of
from .cells import read_cells

RESULT = "recording.json"
LIBRARY = ((ROOT, "minigrad/**/*"), (ROOT, "backends/**/*"))
COURSE = ("*.py", "shared/*.py", "experiments/**/*", "lesson/questions.py", "handout/sealed_source.py")
SHARED = (*LIBRARY, *((HERE, pattern) for pattern in COURSE))
COMPILED = "__pycache__"  # of bytecode and of Numba's machine code, which a run itself writes
DEPENDENCIES = ("numpy", "matplotlib")


class Output(NamedTuple):
    """What one cell of code printed, and the pictures that it drew, as paths in the recording's folder."""

    printed: str
    pictures: list[str]


class Recording(NamedTuple):
    """A run of a lesson: an output for each cell of code, and what the proof of each question says."""

    folder: Path
    outputs: list[Output]
    proofs: list[str]
    machine: str

    @classmethod
    def read(cls, folder: Path) -> Recording:
        result = json.loads((folder / RESULT).read_text(encoding="utf-8"))
        outputs = [Output(**output) for output in result["outputs"]]
        return cls(folder, outputs, result["proofs"], result["machine"])

    @classmethod
    def load(cls, lesson: Path, records: Path) -> Recording:
        """The recording of these sources in ``records``, made now if there is none; older ones are deleted.

        Raises RuntimeError, with the lesson's last line, for a lesson that fails.
        """
        folder = record_of(lesson, records)
        if not (folder / RESULT).is_file():
            for old in [folder, *(file.parent for file in folder.parent.glob(f"*/{RESULT}"))]:
                shutil.rmtree(old, ignore_errors=True)
            folder.mkdir(parents=True)
            command = [sys.executable, "-m", "minigrad_course.site.recording", str(lesson)]
            with (folder / "printed.txt").open("w+b") as printed:
                done = subprocess.run(command, cwd=folder, stdout=printed, stderr=subprocess.PIPE)
            if done.returncode:
                last = done.stderr.decode(errors="replace").rstrip().rpartition("\n")[2]
                number = lesson.parent.name.partition("_")[0]
                raise RuntimeError(f"lesson {number} failed: {last}; run it with minigrad lesson {number}")
        return cls.read(folder)


def record_of(lesson: Path, records: Path) -> Path:
    """The folder in ``records`` of a run of these sources; there is a RESULT in it once there was one."""
    return records.resolve() / lesson.parent.name / digest(lesson)


def digest(lesson: Path, shared: Iterable[tuple[Path, str]] = SHARED) -> str:
    """A name for all that a lesson's run depends on: its own files, the library, Python and NumPy."""
    files = [path for folder, pattern in shared for path in folder.glob(pattern)] + [*lesson.parent.iterdir()]
    return digest_of(file for file in files if file.suffix != ".md")


def digest_of(files: Iterable[Path]) -> str:
    """A name for these files, except those that Python and Numba write, and the versions that run them."""
    whole = hashlib.sha256(platform.python_version().encode())
    whole.update("".join(map(version, DEPENDENCIES)).encode())
    for file in sorted(file for file in files if COMPILED not in file.parts and file.is_file()):
        whole.update(file.name.encode())
        whole.update(hashlib.sha256(file.read_bytes()).digest())
    return whole.hexdigest()[:16]


def run_cells(lesson: Path) -> Iterator[Output]:
    """Run the cells of code one after the other; standard output is a file."""
    names = {"__name__": "__main__", "__file__": str(lesson)}
    pictures: dict[Path, int] = {}
    for cell in read_cells(lesson.read_text(encoding="utf-8")):
        if cell.prose:
            continue
        start = os.lseek(1, 0, os.SEEK_CUR)
        exec(compile("\n" * (cell.line - 1) + cell.text, str(lesson), "exec", dont_inherit=True), names)
        sys.stdout.flush()
        drawn = {path: path.stat().st_mtime_ns for path in pictures_in(Path("runs/lessons"))}
        new = sorted((time, path) for path, time in drawn.items() if pictures.get(path) != time)
        pictures = drawn
        stop = os.lseek(1, 0, os.SEEK_CUR)
        yield Output(os.pread(1, stop - start, start).decode(), [path.as_posix() for _, path in new])


def pictures_in(folder: Path) -> list[Path]:
    """The pictures of a format that pages show."""
    return [path for path in folder.rglob("*") if path.suffix in (".png", ".svg")]


def proofs_of(folder: Path) -> list[str]:
    """What the answers to the lesson's questions prove; nothing where the answers are not installed."""
    if not (folder / ANSWERS).is_file() or not (folder / QUESTIONS).is_file():
        return []
    student = Path("answered.py")
    student.write_text(
        answered((folder / QUESTIONS).read_text(encoding="utf-8"), questions_of(folder)), encoding="utf-8"
    )
    return [verdict.text.partition(": ")[2] for verdict in check(folder, student)]


def machine() -> str:
    """Where and when this process runs, in words."""
    system = f"{platform.system()}, {platform.machine()}, {cores()} cores"
    versions = f"Python {platform.python_version()}, NumPy {version('numpy')}"
    return f"{datetime.date.today().isoformat()} on {system}, {versions}"


def main(script: str) -> None:
    lesson = Path(script)
    sys.path[0] = str(lesson.parent)  # as python LESSON.py has it
    outputs = [output._asdict() for output in run_cells(lesson)]
    result = {"outputs": outputs, "proofs": proofs_of(lesson.parent), "machine": machine()}
    with replacement(Path(RESULT)) as part:
        part.write_text(json.dumps(result, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
