"""Objects by name, from a table or from the entry points of other packages."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from functools import cache, reduce
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint, EntryPoints

T = TypeVar("T")


def entry_points(*, group: str) -> EntryPoints:
    """The entry points in ``group`` of the packages that are installed when a process first asks for them."""
    return entry_points_on(tuple(sys.path)).select(group=group)


@cache  # 3 to 10 ms, as a file of each package is read, and commands ask dozens of times
def entry_points_on(path: tuple[str, ...]) -> Any:
    """The entry points of all groups of the packages on ``path``, which is ``sys.path``.

    Their module is imported here, since it brings parsers of e-mail: 3 MB that a training does not need.
    """
    from importlib import metadata

    return metadata.entry_points()  # of a type that Python 3.12 changed


def choices(table: Mapping[str, Any], group: str) -> list[str]:
    """The names in ``table``, then those that other packages declare in ``group``; nothing is imported."""
    return [*table, *sorted({point.name for point in entry_points(group=group)} - table.keys())]


def check_choice(kind: str, name: str, names: Collection[str]) -> None:
    """Raise ValueError, naming the choices, unless ``name`` is one of ``names``."""
    if name not in names:
        raise ValueError(f"unknown {kind} {name!r}; choose one of {', '.join(names)}")


def lookup(kind: str, name: str, table: Mapping[str, T], group: str = "") -> T:
    """The ``kind`` called ``name``, from ``table`` or from another package's entry points in ``group``.

    Raises ValueError, naming the choices, for an unknown name, and RuntimeError as ``load`` does.
    """
    if name in table:
        return table[name]
    check_choice(kind, name, choices(table, group) if group else table)
    return load(kind, name, group)


def load(kind: str, name: str, group: str) -> Any:
    """The object that the entry point ``name`` of ``group`` refers to.

    Raises RuntimeError, naming the package, where two declare it or it cannot be imported.
    """
    points = {point.value: point for point in entry_points(group=group).select(name=name)}
    declared = f"{kind} {name!r} is declared"
    if len(points) > 1:
        raise RuntimeError(f"{declared} twice, as {origins(name, group)}; uninstall or rename one of them")
    (point,) = points.values()
    try:
        return object_of(point)
    except (Exception, SystemExit) as error:  # importing a plug-in may run anything
        raise RuntimeError(
            f"{declared} as {origins(name, group)}, which cannot be loaded: {type(error).__name__}: {error}; "
            f"install what it needs, or choose another {kind}"
        ) from error


def object_of(point: EntryPoint) -> Any:
    """The object that an entry point refers to.

    Its module is imported as by an import statement, so that a test's copy of the modules finds its own.
    """
    first, *others = point.attr.split(".")
    module = __import__(point.module, fromlist=[first])
    return reduce(getattr, others, getattr(module, first))


def origins(name: str, group: str) -> str:
    """The objects that entry points call ``name``, and the packages that declare them, where known."""
    points = {point.value: point for point in entry_points(group=group).select(name=name)}
    return " and as ".join(
        value if point.dist is None else f"{value} by the package {point.dist.name}"
        for value, point in points.items()
    )


def at_least_one(name: str, value: int) -> int:
    """``value``; raises ValueError, with its name, for less than 1."""
    if value < 1:
        raise ValueError(f"{name} must be at least 1, got {value}")
    return value
