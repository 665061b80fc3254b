"""The names that the library exports, by the file that defines them: its pages show them first."""

from __future__ import annotations

import ast
from pathlib import Path, PurePosixPath

from .module_page import definitions

API = (
    "minigrad/nn",
    "minigrad/ops",
    "minigrad/optim.py",
    "minigrad/data.py",
    "minigrad/train.py",
    "backends/data_parallel",
    "backends/model_parallel",
    "backends/pipeline",
    "backends/sequence_parallel",
    "backends/expert_parallel",
)
"""The packages and modules whose names a user of the library calls, in the order in which one meets them."""


def public_names(root: Path) -> dict[PurePosixPath, list[str]]:
    """The exported classes and functions of each file of ``API``, in order.

    A package exports what the ``__init__.py`` of it, and of each package in it, imports from its files; a
    module all that has no underscore.
    """
    known: dict[PurePosixPath, list[str]] = {}
    for place in map(PurePosixPath, API):
        if place.suffix and (root / place).is_file():
            known[place] = [name for level, name, _ in definitions(parsed(root / place)) if level == 2]
        for package in sorted((root / place).rglob("__init__.py")):
            for node in parsed(package).body:
                if isinstance(node, ast.ImportFrom) and node.level == 1 and node.module:
                    file = package.parent.joinpath(*node.module.split(".")).with_suffix(".py")
                    if file.is_file():
                        path = PurePosixPath(file.relative_to(root).as_posix())
                        known.setdefault(path, []).extend(alias.name for alias in node.names)
    return known


def parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))
