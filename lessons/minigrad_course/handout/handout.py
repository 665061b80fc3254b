"""The student's tree: the library, the lessons and the assignments, without what gives their answers away.

The library itself is part of it, because lessons and grader run on it. What checks the answers to a lesson's
questions, and what grades a8, is in it too, but sealed (sealed_source.py).
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from .. import ROOT
from ..shared.new_folder import new_folder
from .sealed_source import seal, sealed_file

TOP = ("README.md", "LICENSE", "CITATION.cff", "pyproject.toml", "hatch_build.py")
PARTS = (*TOP, "minigrad", "backends", "lessons")
ANSWERS = ("answers.py", "instructor.md")
TEXT_AND_STARTER = {"a8_bug_hunt": ("README.md", "submission.py")}  # its grader holds right implementations
WINDOW = 6  # lines in a row that a file shares with an answer: fewer may also be a signature and a loop
LINK = re.compile(r"\[([^\]]+)\]\((?![a-z]+:|#)([^)#]+)(?:#[^)]*)?\)")


def write_handout(folder: Path, root: Path = ROOT) -> int:
    """Write the tree of ``root`` into ``folder``, which is new or empty; returns the number of files.

    Raises ValueError for another folder, and for a file of the tree that holds a part of an answer.
    """
    with new_folder(folder):
        return write_files(folder, root)


def write_files(folder: Path, root: Path) -> int:
    """``write_handout`` into a folder that is empty."""
    files = list(files_of(root))
    answers = [file for file in (root / "lessons").rglob("*") if file.name in ANSWERS]
    lessons = [file for file in files if file.relative_to(root).parts[0] == "lessons"]
    for file, answer in copies(lessons, answers):
        raise ValueError(
            f"{file} holds lines of {answer.relative_to(root)}; move it out of the lessons, then try again"
        )
    for file in files:
        copy = folder / file.relative_to(root)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, copy)
        if file.suffix == ".md":
            copy.write_text(without_dead_links(file, set(files)), encoding="utf-8")
    sealed = checks(root)
    for file in sealed:
        place = file.relative_to(root)
        copy = sealed_file(folder / place)
        copy.write_text(seal(file.read_text(encoding="utf-8"), place.parent.name), encoding="utf-8")
    return len(files) + len(sealed)


def checks(root: Path) -> list[Path]:
    """The programs that check answers, and give them away to a reader."""
    lessons = root / "lessons"
    graders = [file for name in TEXT_AND_STARTER for file in (lessons / "assignments" / name).glob("*.py")]
    graders = [file for file in graders if file.name not in (*ANSWERS, "submission.py")]
    return [*sorted(lessons.glob("[0-9]*/answers.py")), *sorted(graders)]


def files_of(root: Path) -> Iterator[Path]:
    """The files of a handout, as they are in ``root``."""
    for part in PARTS:
        for file in [root / part] if (root / part).is_file() else sorted((root / part).rglob("*")):
            inside = file.relative_to(root).parts
            generated = any(name.startswith((".", "__pycache__")) for name in inside)
            text_and_starter = TEXT_AND_STARTER.get(file.parent.name, (file.name,))
            if (
                file.is_file()
                and not generated
                and file.name not in ANSWERS
                and file.name in text_and_starter
            ):
                yield file


def copies(files: list[Path], answers: list[Path]) -> Iterator[tuple[Path, Path]]:
    """Each of the ``files`` that has WINDOW lines in a row of an answer, and that answer.

    What an answer quotes from its lesson is no secret.
    """
    source: dict[tuple[str, ...], Path] = {}
    for answer in answers:
        lesson = answer.with_name("lesson.py")
        quoted = set(windows(lesson)) if lesson.is_file() else set()
        source |= dict.fromkeys(set(windows(answer)) - quoted, answer)
    for file in files:
        if shared := next((window for window in windows(file) if window in source), None):
            yield file, source[shared]


def windows(file: Path) -> Iterator[tuple[str, ...]]:
    """All WINDOW lines in a row of a text, without indentation, imports and lines that are only brackets."""
    try:
        lines = [line.strip() for line in file.read_text(encoding="utf-8").splitlines()]
    except UnicodeDecodeError:
        return
    lines = [line for line in lines if re.search(r"\w", line) and not re.match(r"(from|import)\s", line)]
    yield from zip(*(lines[start:] for start in range(WINDOW)), strict=False)


def without_dead_links(file: Path, files: set[Path]) -> str:
    """The text of ``file``; a link to what is not among the ``files`` of the handout becomes its words."""
    folders = {parent for one in files for parent in one.parents}

    def link(match: re.Match[str]) -> str:
        target = (file.parent / match[2]).resolve()
        return match[0] if target in files | folders else match[1]

    return LINK.sub(link, file.read_text(encoding="utf-8"))
