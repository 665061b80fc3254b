"""A course file: one small TOML file with a course's seeds and the points of its tasks.

seed = 4711                # of all assignments

[a2]
seed = 1848                # of this one

[a2.points]                # of the tasks that are named; the others keep theirs
ring_allgather = 20
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from .assignment import FOLDER, Assignment, find_assignment

SETTINGS = ("seed", "points")


@dataclass(frozen=True)
class AssignmentSettings:
    """One table of a course file: the seed of its cases, None for the course's, and points by task."""

    seed: int | None = None
    points: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Course:
    """The seeds of a course, and the points that differ from those in ``tasks.py``, by assignment's name."""

    seed: int = 0
    assignments: Mapping[str, AssignmentSettings] = field(default_factory=dict)

    @classmethod
    def read(cls, file: Path, folder: Path = FOLDER) -> Course:
        """Read the settings of the assignments in ``folder``, and of the course's.

        Raises ValueError, with the place, for a key or value that means nothing, of any assignment.
        """
        if not file.is_file():
            raise ValueError(f"there is no file {file}; --course takes a TOML file with seeds and points")
        try:
            content = tomllib.loads(file.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"{file} is not TOML: {error}") from None
        seed = whole(f"{file}: seed", content.pop("seed", 0))
        settings: dict[str, AssignmentSettings] = {}
        for name, table in content.items():
            if not isinstance(table, dict):
                raise ValueError(f"{file}: there is no setting {name!r}; write seed, or a table such as [a2]")
            try:
                assignment = find_in_folders(name, folder, FOLDER)
            except ValueError as error:
                raise ValueError(f"{file}, [{name}]: {error}") from None
            if assignment.name in settings:
                raise ValueError(f"{file} has two tables for {assignment.name}; join them")
            settings[assignment.name] = read_table(f"{file}, [{name}]", table, assignment)
        return cls(seed, settings)

    def seed_of(self, assignment: Assignment) -> int:
        seed = self.of(assignment).seed
        return self.seed if seed is None else seed

    def weighted(self, assignment: Assignment) -> Assignment:
        """The assignment with this course's points."""
        points = self.of(assignment).points
        tasks = (replace(task, points=points.get(task.name, task.points)) for task in assignment.tasks)
        return replace(assignment, tasks=tuple(tasks))

    def of(self, assignment: Assignment) -> AssignmentSettings:
        return self.assignments.get(assignment.name, AssignmentSettings())


def find_in_folders(name: str, *folders: Path) -> Assignment:
    """The assignment of the first folder that has it; raises the first one's ValueError where none has."""
    errors = []
    for folder in folders:
        try:
            return find_assignment(name, folder)
        except ValueError as error:
            errors.append(error)
    raise errors[0]


def read_table(place: str, table: Mapping[str, Any], assignment: Assignment) -> AssignmentSettings:
    """The table of one assignment; ``place`` begins each error."""
    check_names(place, "setting", table, SETTINGS)
    seed = whole(f"{place}: seed", table["seed"]) if "seed" in table else None
    points = table.get("points", {})
    if not isinstance(points, dict):
        raise ValueError(f"{place}: points is {points!r}; write a line for each task below [a2.points]")
    check_names(place, "task", points, [task.name for task in assignment.tasks])
    for name, value in points.items():
        whole(f"{place}: {name}", value)
    return AssignmentSettings(seed, points)


def check_names(place: str, kind: str, names: Iterable[str], known: Iterable[str]) -> None:
    for name in names:
        if name not in known:
            raise ValueError(f"{place}: there is no {kind} {name!r}; choose from {', '.join(known)}")


def whole(place: str, value: Any) -> int:
    """The value, which must be a whole number from 0 on."""
    if type(value) is not int or value < 0:
        raise ValueError(f"{place} is {value!r}; write a whole number, 0 or more")
    return value
