"""The lessons as their files present them, and a student's copy of them."""

from __future__ import annotations

import ast
import re
import shutil
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from .. import INSTALLED, LESSONS
from ..shared.new_folder import new_folder

COPIED = ("[0-9]*_*", "assignments")
TIME = re.compile(r"about (\d+) minutes; the program runs for about (\d+) seconds")


@dataclass(frozen=True)
class Lesson:
    """A lesson as its docstring presents it.

    ``question`` is what its slide asks, ``needs`` what one must know before, ``goal`` what one can do after
    it; ``minutes`` is the time to read it and to answer its questions, ``seconds`` the time of the program.
    """

    number: str
    title: str
    section: str
    file: Path
    question: str = ""
    needs: str = ""
    goal: str = ""
    minutes: int = 0
    seconds: int = 0

    @property
    def topic(self) -> str:
        """The first words of the title, before its colon."""
        return self.title.partition(":")[0]

    @property
    def run_time(self) -> str:
        """The time of the program in words, with a comma before it; empty where it is not known."""
        return f", for about {self.seconds} s" if self.seconds else ""

    @classmethod
    def read(cls, file: Path) -> Lesson:
        text = docstring(file.read_text(encoding="utf-8"))
        title = text.partition("\n")[0].removeprefix("Lesson ").partition(". ")[2]
        section = text.partition("Lecture section: ")[2].partition(".")[0].replace("\n", " ")
        time = TIME.search(paragraph(text, "Time"))
        minutes, seconds = map(int, time.groups()) if time else (0, 0)
        return cls(
            file.parent.name.partition("_")[0],
            title.rstrip("."),
            section,
            file,
            paragraph(text, "The slide asks"),
            paragraph(text, "You need"),
            paragraph(text, "After this you can"),
            minutes,
            seconds,
        )


@cache  # a lesson takes 14 ms to parse
def docstring(program: str) -> str:
    """The docstring of a program's text, "" where there is none."""
    return ast.get_docstring(ast.parse(program)) or ""


def paragraph(text: str, label: str) -> str:
    """The paragraph that begins with ``label`` and a colon, in one line and without its label, or ""."""
    match = re.search(rf"^{label}: (.+?)(?:\n\n|\Z)", text, re.MULTILINE | re.DOTALL)
    return " ".join(match[1].split()) if match else ""


def lessons(folder: Path = LESSONS) -> list[Lesson]:
    """All lessons, in order; raises RuntimeError where the lessons are not installed."""
    files = sorted(folder.glob("[0-9]*/lesson.py"))
    if not files:
        raise RuntimeError(f"there are no lessons in {folder}; install minigrad-course again")
    return [Lesson.read(file) for file in files]


def copy_lessons(folder: Path) -> None:
    """Copy the lessons and assignments, without answers, to a new or empty ``folder``; else ValueError."""
    ignored = shutil.ignore_patterns("answers.py", "instructor.md", "__pycache__", "runs")
    with new_folder(folder):
        for source in (path for pattern in COPIED for path in LESSONS.glob(pattern)):
            shutil.copytree(source, folder / source.name, ignore=ignored)


def own_copy(file: Path) -> Path:
    """The student's copy of ``file`` where the current folder is one that ``--copy`` made, else ``file``."""
    if not file.is_relative_to(LESSONS):
        return file
    copy = file.relative_to(LESSONS)
    return copy if copy.exists() else file


def is_installed(file: Path) -> bool:
    """Whether the file is one of an installation, which is nobody's to edit."""
    return INSTALLED and file.is_relative_to(LESSONS)


def own_starter(file: Path) -> Path:
    """The student's copy of a starter; raises ValueError where the only one is that of the installation."""
    copy = own_copy(file)
    if is_installed(copy):
        raise ValueError(
            f"there is no {file.relative_to(LESSONS)} in this folder, and the installed one is nobody's "
            f"submission; name your file, or write a copy of the course with: minigrad lesson --copy DIR"
        )
    return copy
