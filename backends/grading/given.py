"""The submission as a check sees it: its names, which come from its file and not from the library."""

from __future__ import annotations

import sys
from difflib import get_close_matches
from types import FunctionType, MethodType, ModuleType
from typing import Any

from .task import Wrong

LIBRARY = ("minigrad", "backends")


class Missing(Wrong, AttributeError):
    """The submission has no such name."""


class Given:
    """The names of a submission; a name that the starter defines may not be another's object.

    Each rank has a program of its own, also where ranks are threads: what one keeps, another does not see.
    """

    def __init__(self, source: str, file: str, own: set[str], rank: int = 0):
        self.__file__, self._program = file, (source, file, own)
        self._module = load(source, file, f"submission_of_rank_{rank}" if rank else "submission")
        self._ranks: dict[int, Given] = {rank: self}

    def _on(self, rank: int) -> Given:
        if rank not in self._ranks:
            self._ranks[rank] = Given(*self._program, rank)
        return self._ranks[rank]

    def __getattr__(self, name: str) -> Any:
        try:
            value = getattr(self._module, name)
        except AttributeError:
            near = get_close_matches(name, vars(self._module), 1)
            hint = f"; it has {near[0]}: is that the one?" if near else ""
            raise Missing(f"the submission does not define {name}{hint}") from None
        if name in self._program[2] and not callable(value):
            raise Wrong(f"{name} is {value!r:.40}, not a function or a class")
        home = str(getattr(value, "__module__", ""))
        made_here = not isinstance(value, type | FunctionType | MethodType)
        if name in self._program[2] and not made_here and home.split(".")[0] in LIBRARY:
            raise Wrong(f"{name} is {home}.{value.__qualname__} of the library; write your own")
        return value


def on_rank(submission: Any, rank: int) -> Any:
    """The submission as that rank has it."""
    return submission._on(rank) if isinstance(submission, Given) else submission


def load(source: str, file: str, name: str) -> ModuleType:
    """The program as a module of that name, made from the text that was read, whatever the file holds now."""
    module = ModuleType(name)
    module.__file__ = file
    sys.modules[name] = module
    exec(compile(source, file, "exec", dont_inherit=True), module.__dict__)
    return module
