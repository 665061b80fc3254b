"""The submission as a check sees it: its names, which come from its file and not from the library."""

from __future__ import annotations

import sys
from types import FunctionType, MethodType, ModuleType
from typing import Any

from .task import Wrong

LIBRARY = ("minigrad", "backends")


class Missing(Wrong, AttributeError):
    """The submission has no such name."""


class Given:
    """The names of a submission; a name that the starter defines may not be another's object."""

    def __init__(self, module: ModuleType, own: set[str]):
        self.__file__, self.module, self.own = module.__file__, module, own

    def __getattr__(self, name: str) -> Any:
        try:
            value = getattr(self.module, name)
        except AttributeError:
            raise Missing(f"the submission does not define {name}") from None
        home = str(getattr(value, "__module__", ""))
        made_here = not isinstance(value, type | FunctionType | MethodType)
        if name in self.own and not made_here and home.split(".")[0] in LIBRARY:
            raise Wrong(f"{name} is {home}.{value.__qualname__} of the library; write your own")
        return value


def load(source: str, file: str, name: str = "submission") -> ModuleType:
    """The program as a module of that name, made from the text that was read, whatever the file holds now."""
    module = ModuleType(name)
    module.__file__ = file
    sys.modules[name] = module
    exec(compile(source, file, "exec", dont_inherit=True), module.__dict__)
    return module
