"""A lesson as a notebook for Jupyter, format 4.5, without output."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from .cells import Cell, read_cells

SET_UP = """# The kernel needs minigrad, whose package has this lesson's data and helper files.
import os
import sys


class NoMinigrad(ImportError):
    def _render_traceback_(self):  # what Jupyter shows in the place of a traceback
        return [str(self)]


try:
    from minigrad_course import LESSONS
except ImportError:
    raise NoMinigrad({missing!r}) from None
folders = [{folders}]  # of the lesson's helper files
if not any(map(os.path.isdir, folders)):
    raise NoMinigrad({old!r})
sys.path[:0] = folders
"""
MISSING = (
    "This kernel's Python has no minigrad. Run %pip install minigrad-course in a new cell (or %pip install "
    "and the path of its wheel, or of a clone), then this cell again."
)
OLD = (
    "This kernel's minigrad is older than this notebook and has no lesson {lesson}. Run %pip install "
    "--upgrade minigrad-course in a new cell (or %pip install and the path of a newer wheel), and restart "
    "the kernel."
)
LINK = re.compile(r"(`[^`]*`)|(?<!!)\[([^][]+)\]\((?!\w+:|#)[^()\s]+\)")
"""Code, or a link to a file, which is not beside the notebook."""
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def notebook(lesson: Path, helpers: Path | None = None) -> str:
    """The notebook's JSON: the docstring is its first cell, and the second one finds the helper files.

    They are those of the installed lesson, wherever the notebook is opened; of a student's copy those in the
    folder ``helpers``, where it is there. The second cell says in one line what to install where minigrad, or
    the lesson, is missing. Links to files are text, as a notebook may be opened without these files.
    """
    opening, *rest = read_cells(lesson.read_text(encoding="utf-8"))
    name = lesson.parent.name
    folders = [repr(str(helpers.resolve()))] if helpers is not None else []
    folders.append(f'str(LESSONS / "{name}")')
    settings = {"missing": MISSING, "old": OLD.format(lesson=name), "folders": ", ".join(folders)}
    cells = [opening, Cell(False, SET_UP.format(**settings), 0), *rest]
    content = [as_json(number, cell) for number, cell in enumerate(cells)]
    whole = {"nbformat": 4, "nbformat_minor": 5, "metadata": METADATA, "cells": content}
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def as_json(number: int, cell: Cell) -> dict[str, Any]:
    text = without_links(cell.text) if cell.prose else cell.text
    common = {"id": f"cell-{number}", "metadata": {}, "source": text.rstrip("\n").splitlines(keepends=True)}
    if cell.prose:
        return {"cell_type": "markdown", **common}
    return {"cell_type": "code", "execution_count": None, "outputs": [], **common}


def without_links(prose: str) -> str:
    """Markdown in which the words of a link to a file are text; links to the web and to headings stay."""
    return LINK.sub(lambda match: match[1] or match[2], prose)
