"""A lesson's cells: `# %%` begins code, `# %% [markdown]` begins prose, which is written as comments."""

from __future__ import annotations

import ast
import re
from typing import NamedTuple

SAVES = re.compile(r"\bsave\(|savefig\(")
MARK = re.compile(r"^# %%( \[markdown\])?[^\n]*\n", re.MULTILINE)


class Cell(NamedTuple):
    """The ``text`` of prose in Markdown, or of code that begins in ``line`` of the file."""

    prose: bool
    text: str
    line: int


def read_cells(source: str) -> list[Cell]:
    """The cells of a script; the first one is its docstring, as prose, and empty cells are left out."""
    opening = ast.get_docstring(ast.parse(source))
    cells = [] if opening is None else [Cell(True, as_markdown(opening), 1)]
    marks = list(MARK.finditer(source))
    ends = [mark.start() for mark in marks[1:]] + [len(source)]
    for mark, end in zip(marks, ends, strict=True):
        text = source[mark.end() : end]
        if mark[1]:
            text = re.sub("^# ?", "", text, flags=re.MULTILINE)
        if text.strip():
            cells.append(Cell(bool(mark[1]), text.rstrip() + "\n", source.count("\n", 0, mark.end()) + 1))
    return cells


def only_draws(code: str) -> bool:
    """Whether a cell of code saves a picture, and neither asserts nor prints anything."""
    nodes = list(ast.walk(ast.parse(code)))
    prints = any(isinstance(node, ast.Name) and node.id == "print" for node in nodes)
    return bool(SAVES.search(code)) and not prints and not any(isinstance(node, ast.Assert) for node in nodes)


def as_markdown(docstring: str) -> str:
    """A docstring whose first paragraph is the heading."""
    title, _, text = docstring.partition("\n\n")
    return f"# {' '.join(title.split()).rstrip('.')}\n\n{text}\n"
