"""The house drawn: which parts of the project import which, as floors that stand on the floors below.

``python -m tests.house`` prints the picture in CONTRIBUTING.md. A part is a folder, or a file at the top of
``minigrad/`` or ``backends/``. Imports within functions count, those for annotations alone do not. What the
picture leaves out, folders in folders, is in ``folders``.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path

from tests.reading import ROOT, imported

Parts = Mapping[str, set[str]]
"""The parts that each part imports, by name; a folder's name ends with a slash."""

PACKAGES = ("lessons", "backends", "minigrad")


def part_of(file: Path, root: Path) -> str:
    """``minigrad/tape`` for a file at the top of a package, ``backends/comm/`` for one in a folder in it."""
    path = file.relative_to(root)
    if path.parts[0] == "lessons":
        return "lessons/minigrad_course/" if path.parts[1] == "minigrad_course" else "lessons/"
    return path.with_suffix("").as_posix() if len(path.parts) == 2 else f"{'/'.join(path.parts[:2])}/"


def parts(root: Path = ROOT) -> Parts:
    """What each part imports; an ``__init__.py``, which lists the names of its folder, has no arrows."""
    arrows: dict[str, set[str]] = {}
    for package in PACKAGES:
        for file in sorted((root / package).rglob("*.py")):
            if file.name not in ("__init__.py", "__main__.py"):
                part = part_of(file, root)
                others = {part_of(one, root) for one in imported(file, root)}
                arrows.setdefault(part, set()).update(others - {part, f"{package}/__init__"})
    return arrows


def folders(root: Path = ROOT) -> Parts:
    """What each folder within a package imports: its own files do, not those of its subfolders."""
    arrows: dict[str, set[str]] = {}
    for package in PACKAGES:
        for file in sorted((root / package).rglob("*.py")):
            if file.name not in ("__init__.py", "__main__.py"):
                one, *others = (
                    f"{path.parent.relative_to(root).as_posix()}/" for path in (file, *imported(file, root))
                )
                arrows.setdefault(one, set()).update({*others} - {one})
    return {one: others - {f"{package}/" for package in PACKAGES} for one, others in arrows.items()}


def pairs(arrows: Parts) -> list[tuple[str, str]]:
    """The parts that import one another."""
    return sorted((a, b) for a in arrows for b in arrows[a] if a < b and a in arrows.get(b, ()))


def floors(arrows: Parts) -> list[list[str]]:
    """The parts of each floor, the lowest first: each imports parts of lower floors alone.

    Raises ValueError where parts import one another in a circle.
    """
    below: set[str] = set()
    result: list[list[str]] = []
    while left := sorted(arrows.keys() - below):
        floor = [part for part in left if arrows[part] <= below]
        if not floor:
            raise ValueError(f"there is a circle of imports among {', '.join(left)}")
        result.append(floor)
        below.update(floor)
    return result


def picture(arrows: Parts) -> str:
    """The floors of each package, the highest first, as text."""
    lines = []
    for package in PACKAGES:
        inside = {part: arrows[part] & within(arrows, package) for part in within(arrows, package)}
        lines.append(f"{package}/")
        for number, floor in reversed(list(enumerate(floors(inside), 1))):
            names = "  ".join(part.removeprefix(f"{package}/") or part for part in floor)
            lines += textwrap.wrap(names, 100, initial_indent=f"  {number:2}  ", subsequent_indent=" " * 6)
    return "\n".join(lines)


def within(arrows: Parts, package: str) -> set[str]:
    return {part for part in arrows if part.startswith(f"{package}/")}


def main(root: Path = ROOT) -> None:
    print(picture(parts(root)))


if __name__ == "__main__":
    main(*(Path(argument) for argument in sys.argv[1:]))
