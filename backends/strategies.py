"""Strategies by name, found through the entry points that this and other packages declare."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points

from minigrad.backend import Backend

from .comm import Comm

GROUP = "minigrad.backends"


def strategy_names() -> list[str]:
    """The names that ``--strategy`` takes."""
    return sorted({point.name for point in entry_points(group=GROUP)})


def find_strategy(name: str) -> Callable[[Comm], Backend]:
    """The strategy called ``name``; raises ValueError naming the choices."""
    found = list(entry_points(group=GROUP, name=name))
    if not found:
        raise ValueError(f"unknown strategy {name!r}; choose one of {', '.join(strategy_names())}")
    return found[0].load()
