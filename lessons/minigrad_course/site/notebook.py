"""A lesson as a notebook for Jupyter, format 4.5, without output."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .cells import Cell, read_cells

HELPERS = """# This kernel needs minigrad: pip install its wheel, or -e . in a clone, into its environment.
import sys

from minigrad_course import LESSONS

sys.path.insert(0, {folder})  # the lesson's helper files
"""
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def notebook(lesson: Path, helpers: Path | None = None) -> str:
    """The notebook's JSON: the docstring is its first cell, and the second one finds the helper files.

    They are those of the installed lesson, wherever the notebook is opened; of a student's copy those in the
    folder ``helpers``.
    """
    opening, *rest = read_cells(lesson.read_text(encoding="utf-8"))
    folder = f'str(LESSONS / "{lesson.parent.name}")' if helpers is None else repr(str(helpers.resolve()))
    cells = [opening, Cell(False, HELPERS.format(folder=folder), 0), *rest]
    content = [as_json(number, cell) for number, cell in enumerate(cells)]
    whole = {"nbformat": 4, "nbformat_minor": 5, "metadata": METADATA, "cells": content}
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def as_json(number: int, cell: Cell) -> dict[str, Any]:
    common = {
        "id": f"cell-{number}",
        "metadata": {},
        "source": cell.text.rstrip("\n").splitlines(keepends=True),
    }
    if cell.prose:
        return {"cell_type": "markdown", **common}
    return {"cell_type": "code", "execution_count": None, "outputs": [], **common}
