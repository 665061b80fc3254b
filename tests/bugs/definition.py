"""Definitions of the project by name, so that a seeded bug need not say in which file a function is."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PACKAGES = {"minigrad": ROOT, "backends": ROOT, "minigrad_course": ROOT / "lessons", "tests": ROOT}
"""The packages in which definitions are matches, each with the folder that it is in."""

FIRST_WORDS = re.compile(r"^ *(?:(?:async )?def |class )?(\w+(?:, \w+)*)", re.MULTILINE)


class Definition(NamedTuple):
    """A function, a class, a method or a variable of a module, by its name there: ``Bucket.fill``."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


def definition(name: str) -> Definition:
    """The one definition called ``name``, which may begin with as much of its module's name as is needed.

    Raises LookupError where there is none, or where there are several.
    """
    matches = [
        one
        for file, module in files_by_first_word().get(name.rpartition(".")[2], {}).items()
        for one in definitions_in(file, module)
        if f".{one}".endswith(f".{name}")
    ]
    if len(matches) != 1:
        which = f": {', '.join(map(str, matches))}; write more of the module's name" if matches else ""
        raise LookupError(f"{name} names {len(matches)} definitions of the project{which}")
    return matches[0]


@cache
def files_by_first_word() -> Mapping[str, Mapping[Path, str]]:
    """The project's files with a line whose first word, or what it defines, this is; with their modules.

    A process that looks for a few definitions parses only these files, not all of the project.
    """
    files: defaultdict[str, dict[Path, str]] = defaultdict(dict)
    for package, folder in PACKAGES.items():
        for file in sorted((folder / package).rglob("*.py")):
            module = ".".join(file.relative_to(folder).with_suffix("").parts).removesuffix(".__init__")
            for names in set(FIRST_WORDS.findall(file.read_text(encoding="utf-8"))):
                for name in names.split(", "):
                    files[name][file] = module
    return files


@cache
def definitions_in(file: Path, module: str) -> list[Definition]:
    names = {name for name, _ in nodes_of(file.read_text(encoding="utf-8"))}
    return [Definition(module, name) for name in sorted(names)]


def nodes_of(text: str) -> Iterator[tuple[str, ast.stmt]]:
    """The definitions at the top of a module and of its classes, each with its name and its statement."""
    yield from nodes_in(ast.parse(text).body, "")


def nodes_in(body: Sequence[ast.stmt], prefix: str) -> Iterator[tuple[str, ast.stmt]]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield prefix + node.name, node
        if isinstance(node, ast.ClassDef):
            yield from nodes_in(node.body, f"{prefix}{node.name}.")
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = (name for target in targets for name in ast.walk(target))
            yield from ((prefix + name.id, node) for name in names if isinstance(name, ast.Name))
        elif isinstance(node, ast.If | ast.Try | ast.With):
            for inner in (getattr(node, field, []) for field in ("body", "orelse", "finalbody")):
                yield from nodes_in(inner, prefix)


def changed(text: str, where: Definition, right: str, wrong: str) -> str:
    """The module's ``text`` with the piece ``right`` of a definition replaced by ``wrong``.

    Both are indented as if the definition stood at the left margin. Raises LookupError where ``right`` is
    not in the definition exactly once: the source has moved on.
    """
    lines = text.splitlines(keepends=True)
    spans = [span_of(node) for name, node in nodes_of(text) if name == where.name]
    pieces = ["".join(lines[start:end]) for start, end in spans]  # several of an overloaded function
    margins = [margin_of(piece) for piece in pieces]
    pieces = [moved(piece, -margin) for piece, margin in zip(pieces, margins, strict=True)]
    count = sum(piece.count(right) for piece in pieces)
    if count != 1:
        raise LookupError(f"{where} holds {count} times {right!r}: move the bug along")
    (n,) = (n for n, piece in enumerate(pieces) if right in piece)
    start, end = spans[n]
    return "".join([*lines[:start], moved(pieces[n].replace(right, wrong), margins[n]), *lines[end:]])


def span_of(node: ast.stmt) -> tuple[int, int]:
    """The first line of a statement, with its decorators, and the line after it, both counted from 0."""
    decorators = node.decorator_list if isinstance(node, ast.FunctionDef | ast.ClassDef) else []
    first = min([node.lineno, *(decorator.lineno for decorator in decorators)])
    return first - 1, node.end_lineno or node.lineno


def margin_of(piece: str) -> int:
    """The spaces with which every line of ``piece`` begins, but for the empty ones."""
    return min(len(line) - len(line.lstrip(" ")) for line in piece.splitlines() if line.strip())


def moved(piece: str, spaces: int) -> str:
    """``piece`` with each line that is not empty moved to the right, or to the left by a negative number."""
    lines = piece.splitlines(keepends=True)
    if spaces < 0:
        return "".join(line[-spaces:] if line.strip() else line for line in lines)
    return "".join(" " * spaces + line if line.strip() else line for line in lines)
