"""The library as it was, to be compared with what a submission leaves of it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

LIBRARY = ("minigrad", "backends")
WATCHED = ("builtins", "numpy", "numpy.testing", "numpy.linalg", "__main__")
Kept = dict[str, tuple[Any, ...]]


def watched_modules(folder: Path) -> dict[str, ModuleType]:
    """What a submission leaves alone: the library's modules, some of NumPy's, Python's own, ``folder``'s."""

    def watched(name: str, module: ModuleType) -> bool:
        ours = name.split(".")[0] in LIBRARY or name in WATCHED
        return ours or str(getattr(module, "__file__", None)).startswith(f"{folder}{os.sep}")

    return {name: m for name, m in sys.modules.items() if isinstance(m, ModuleType) and watched(name, m)}


def photograph(owners: Mapping[str, Any]) -> Kept:
    """What the names of these modules and objects stand for at this moment."""
    kept: Kept = {}
    for name, owner in owners.items():
        for key, value in list(vars(owner).items()):
            if not isinstance(value, ModuleType) and not key.startswith("__"):
                keep(kept, f"{name}.{key}", value)
    return kept


def keep(kept: Kept, name: str, value: Any) -> None:
    """Remember an object, the code of a function, and the methods of a class where it is defined."""
    code = (value.__code__, value.__defaults__) if isinstance(value, FunctionType) else ()
    kept[name] = (value, *code)
    if isinstance(value, type) and value.__module__ == name.rpartition(".")[0]:
        for key, part in list(vars(value).items()):
            if isinstance(part, FunctionType | property | classmethod | staticmethod):
                keep(kept, f"{name}.{key}", part)


def changed(before: Kept, after: Kept) -> list[str]:
    """The names that stand for something else now, or for nothing; and what was added."""
    other = [name for name, things in before.items() if not same(things, after.get(name, ()))]
    return other + [name for name in after if name not in before]


def same(these: tuple[Any, ...], those: tuple[Any, ...]) -> bool:
    return len(these) == len(those) and all(x is y for x, y in zip(these, those, strict=True))
