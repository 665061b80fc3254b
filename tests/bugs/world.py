"""The project's modules once more, with a bug in one of them, as a world of their own.

Whoever uses what is wrong must meet it, and nobody else in the process may. So a law that is to meet a bug is
loaded anew, and with it all modules of the project that it imports, and those that they import: each once in
this world, from the text that is shipped, but for the one piece that the bug replaces. Modules that import
nothing wrong, however indirectly, come from the one world without bugs: their machine code is there already.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from importlib.abc import SourceLoader
from importlib.util import resolve_name
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, NamedTuple

from tests.bugs.definition import PACKAGES, Definition, changed

FAST = "minigrad.ops.fast"
IMPORT = re.compile(
    r"^ *((?:import |from \S+ import (?=[^(\n]+$)).*|from \S+ import \([^)]*\))", re.MULTILINE
)

Changes = Sequence[tuple[Definition, str, str]]
"""Definitions of a module, each with a piece of its text, and what stands in its place."""


class World:
    """Private copies of the project's modules; those named in ``patches`` with these changes.

    Raises LookupError for a piece of text that is not in its definition exactly once.
    """

    def __init__(self, patches: Mapping[str, Changes] | None = None):
        self.texts = {name: changed_text(name, changes) for name, changes in (patches or {}).items()}
        self.modules: dict[str, ModuleType] = {}
        self.builtins = {**vars(builtins), "__import__": self.find}

    def again(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """This world's copy of a function at the top of one of the project's modules."""
        return getattr(self.load(function.__module__), function.__name__)

    def load(self, name: str) -> ModuleType:
        """The module of that name, which runs at its first use, as in any import."""
        if name in self.modules:
            return self.modules[name]
        parent, _, last = name.rpartition(".")
        package = self.load(parent) if parent else None
        if name in self.modules:  # the package has imported it
            return self.modules[name]
        file, places = location(name)
        if self.texts and not places and self.texts.keys().isdisjoint(reachable(name)):
            module = self.modules[name] = world_without_bugs().load(name)
            setattr(package, last, module)
            return module
        module = self.modules[name] = ModuleType(name)
        module.__dict__.update(__file__=file, __builtins__=self.builtins)
        module.__package__ = name if places else parent
        if places:
            module.__path__ = places
        if package is not None:
            setattr(package, last, module)
        if file is not None:
            text = self.texts.get(name)
            exec(code(name) if text is None else compile(text, f"{file} (changed)", "exec"), vars(module))
        return module

    def find(
        self, name: str, globals: Any = None, locals: Any = None, fromlist: Sequence[str] = (), level: int = 0
    ) -> ModuleType:
        """What an import statement of one of these modules does."""
        absolute = resolve_name("." * level + name, globals["__package__"]) if level else name
        top = absolute.partition(".")[0]
        if top not in PACKAGES:
            return builtins.__import__(name, globals, locals, fromlist, level)
        module = self.load(absolute)
        for item in fromlist or ():
            if not hasattr(module, item) and hasattr(module, "__path__"):
                self.load(f"{absolute}.{item}")
        return module if fromlist else self.modules[top]


@cache
def world_without_bugs() -> World:
    """The one world in which nothing is changed."""
    return World()


class Location(NamedTuple):
    """A module's file, and where the modules of a package are; no file for a folder that is a package."""

    file: str | None
    places: list[str]


@cache
def location(name: str) -> Location:
    """Where a module is. It is imported, too, since dataclasses look for the module that they are in."""
    real = import_module(name)
    return Location(getattr(real, "__file__", None), list(getattr(real, "__path__", ())))


@cache
def reachable(name: str) -> frozenset[str]:
    """A module, and the modules of the project that it imports anywhere in its text, however indirectly."""
    modules, new = set[str](), {name}
    while new:
        modules |= new
        new = {other for module in new for other in imports_of(module) | joined_to(module)} - modules
    return frozenset(modules)


def joined_to(name: str) -> frozenset[str]:
    """The modules whose faster forms join a module's functions, so that it runs what they say."""
    return frozenset(fast for fast in fast_modules() if name in imports_of(fast))


@cache
def fast_modules() -> list[str]:
    """The modules of the fast shelf that join a form to a readable one."""
    files = sorted(file_of(FAST).parent.glob("*.py"))
    return [f"{FAST}.{file.stem}" for file in files if "@form_of(" in file.read_text(encoding="utf-8")]


@cache
def imports_of(name: str) -> frozenset[str]:
    """The modules of the project that a module's text imports, also within functions; nothing is imported."""
    file, modules = file_of(name), set[str]()
    package = name if file.name == "__init__.py" else name.rpartition(".")[0]
    for node in statements_of_imports(file) if file.exists() else ():
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = resolve_name("." * node.level + (node.module or ""), package)
            if base.partition(".")[0] not in PACKAGES:
                continue
            names = {f"{base}.{alias.name}" for alias in node.names}
            modules |= {name if file_of(name).exists() else base for name in names}
    return frozenset(module for module in modules if module.partition(".")[0] in PACKAGES)


def statements_of_imports(file: Path) -> Iterator[ast.AST]:
    """The import statements of a file, also those in texts of programs, parsed without the rest."""
    text = file.read_text(encoding="utf-8")
    try:
        return ast.walk(ast.parse("\n".join(IMPORT.findall(text))))
    except SyntaxError:  # a sentence begins like an import
        return ast.walk(ast.parse(text))


def file_of(name: str) -> Path:
    """Where a module of that name would be."""
    path = PACKAGES[name.partition(".")[0]].joinpath(*name.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


@cache
def code(name: str) -> CodeType:
    """A module as it is shipped, compiled once for all worlds: Python keeps it beside the file."""
    spec, file = import_module(name).__spec__, file_of(name)
    stored = spec.loader.get_code(name) if spec and isinstance(spec.loader, SourceLoader) else None
    # Files of tests have a loader of pytest, which rewrites their assertions.
    return stored or compile(file.read_text(encoding="utf-8"), file, "exec", dont_inherit=True)


def changed_text(name: str, changes: Changes) -> str:
    """The text of a module after ``changes``. It is of no file, so Numba keeps no machine code of it."""
    text = file_of(name).read_text(encoding="utf-8")
    for where, right, wrong in changes:
        text = changed(text, where, right, wrong)
    return text
