"""The library's own answers to a task: found in a submission's text, and hidden from it when it runs."""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from .sources import HIDDEN, INWARD, reached

# The grader itself, and what finds its way to it without naming it
GRADER = (
    "backends.grading",
    "__main__",
    "gc",
    "ctypes",
    "inspect.currentframe",
    "inspect.stack",
    "signal",
    "sys._getframe",
    "sys._current_frames",
    "sys.setprofile",
    "sys.settrace",
    "tasks",
    "threading.setprofile",
    "threading.settrace",
    *INWARD,
)
LIBRARY = ("minigrad", "backends")
ROOT = Path(__file__).parents[2]


class Hidden:
    """What ``Task.answers`` names: ``package.module:name``, or ``package.module`` for all defined in it."""

    def __init__(self, answers: Iterable[str]):
        self.modules: list[str] = []
        self.objects: list[Any] = []
        self.behind: dict[str, ModuleType] = {}  # what stands behind a stand-in
        for answer in answers:
            module, _, name = answer.partition(":")
            found = importlib.import_module(module)
            if name:
                self.objects.append(getattr(found, name))
                continue
            self.modules.append(module)
            for part in pkgutil.walk_packages(getattr(found, "__path__", []), f"{module}."):
                importlib.import_module(part.name)

    def __bool__(self) -> bool:
        return bool(self.modules or self.objects)

    def holds(self, x: Any) -> bool:
        """Whether ``x`` is an answer, or was defined in a module of answers."""
        if any(x is answer for answer in self.objects):
            return True
        home = x.__name__ if isinstance(x, ModuleType) else getattr(x, "__module__", None)
        return isinstance(home, str) and self.names(home)

    def leads(self, x: Any) -> bool:
        """Whether ``x`` is an answer, or is the library's from a module that took one in, to call it."""
        home = None if isinstance(x, ModuleType) else getattr(x, "__module__", None)
        if self.holds(x) or not isinstance(home, str) or home.split(".")[0] not in LIBRARY:
            return self.holds(x)
        module = self.behind.get(home, sys.modules.get(home))
        taken = [] if module is None else [x for x in vars(module).values() if self.holds(x)]
        return any(getattr(x, "__module__", None) != home for x in taken)

    def names(self, module: str) -> bool:
        return any(module == name or module.startswith(f"{name}.") for name in self.modules)

    def reaches(self, name: str) -> bool:
        """Whether a dotted name, as ``reached`` gives them, leads to an answer."""
        if name == HIDDEN or name.split(".")[0] in ("answers", "lessons"):
            return True
        if self.names(name):
            return True
        name, star, _ = name.partition(".*")
        if name.split(".")[0] not in LIBRARY:
            return False
        found = look_up(name)
        if star and isinstance(found, ModuleType):
            return any(self.holds(value) for value in vars(found).values())
        return found is not None and self.leads(found)

    def refusal(self, source: str) -> str | None:
        """Why a program with this text may not be graded; None where it may be, or is no Python."""
        try:
            names = reached(source)
        except SyntaxError:
            return None  # loading it says where
        for name, line in names.items():
            if any(name == part or name.startswith(f"{part}.") for part in GRADER):
                return f"line {line} takes {name}; a submission leaves what it is graded by alone"
            if not self:
                continue
            if name == HIDDEN:
                return (
                    f"line {line} imports or makes code by a name or a text that only shows when it runs; "
                    "a submission says what it uses in plain import statements"
                )
            if self.reaches(name):
                return (
                    f"line {line} takes {name.removesuffix('.*')} from the library, and that is the answer "
                    "to this task, or calls it; write it yourself"
                )
        return None

    def hide(self, allowed: Path, submission: str) -> None:
        """From now on an answer is looked up in vain, except by the library and the files in ``allowed``.

        The modules stay as they are: the importing program is shown stand-ins. The submission may lie
        beside the tasks, and is not allowed there either.
        """
        homes = ("<frozen", f"{allowed}{os.sep}", *(f"{ROOT / package}{os.sep}" for package in LIBRARY))

        def trusted(file: str) -> bool:
            return file != submission and file.startswith(homes)

        for name, module in list(sys.modules.items()):
            if name.split(".")[0] not in LIBRARY or not isinstance(module, ModuleType):
                continue
            if self.names(name) or any(self.holds(value) for value in vars(module).values()):
                stand_in = StandIn(module, self, trusted)
                self.behind[name], sys.modules[name] = module, stand_in
                parent, _, last = name.rpartition(".")
                if getattr(sys.modules.get(parent), last, None) is module:  # not a function of that name
                    setattr(sys.modules[parent], last, stand_in)


class StandIn(ModuleType):
    """A module as a submission sees it: everything in it but the answers."""

    def __init__(self, module: ModuleType, hidden: Hidden, trusted: Callable[[str], bool]):
        super().__init__(module.__name__, module.__doc__)
        self.__dict__.update({key: value for key, value in vars(module).items() if key.startswith("__")})

        def __getattr__(name: str) -> Any:
            value = getattr(module, name)
            asked_by = sys._getframe(1).f_code.co_filename
            if trusted(asked_by) or isinstance(value, ModuleType) or not hidden.leads(value):
                return value
            raise PermissionError(f"{module.__name__}.{name} is the library's answer; write it yourself")

        self.__dict__["__getattr__"] = __getattr__


def look_up(name: str) -> Any:
    """The object of a dotted name: of its longest part that is a module; None where there is none."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:length]))
        except ImportError:
            continue
        for part in parts[length:]:
            found = getattr(found, part, None)
        return found
    return None
