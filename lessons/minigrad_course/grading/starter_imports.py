"""What a starter imports: the worker imports other packages itself, and gets names of the library from here.

The library is absent where a submission runs. A function of it is called in the judge's process, and of a
dataclass the worker makes one with the same fields.
"""

from __future__ import annotations

import ast
import importlib
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from functools import wraps
from types import FunctionType
from typing import Any

from .static_check import imports
from .worker.rpc import RemoteObject

LIBRARY = ("minigrad", "backends", "minigrad_course")


@dataclass(frozen=True)
class StarterImports:
    """``modules`` of other packages, and of the library functions and dataclasses, by module and name."""

    modules: list[str] = field(default_factory=list)
    functions: Mapping[tuple[str, str], Callable[..., Any]] = field(default_factory=dict)
    records: Mapping[tuple[str, str], type[Any]] = field(default_factory=dict)

    @classmethod
    def read(cls, starter: str) -> StarterImports:
        """The imports of a program; raises ValueError for a name of the library that cannot be lent."""
        modules: list[str] = []
        functions: dict[tuple[str, str], Callable[..., Any]] = {}
        records: dict[tuple[str, str], type[Any]] = {}
        for module, name in imported_names(starter):
            if module.partition(".")[0] not in LIBRARY:
                modules.append(module)
                continue
            value = getattr(importlib.import_module(module), name or "", None)
            if isinstance(value, FunctionType):
                functions[module, str(name)] = of_the_judge(value)
            elif isinstance(value, type) and is_dataclass(value):
                records[module, value.__name__] = value
            else:
                raise ValueError(
                    f"the starter imports {name or 'all'} of {module}; a submission can have functions and "
                    "dataclasses of the library, by name, and nothing else of it"
                )
        return cls(modules, functions, records)

    def for_answers(self, source: str) -> StarterImports:
        """The imports of ``source``, a program that may import the library itself."""
        return StarterImports([module for module, _ in imported_names(source)], {}, self.records)

    def record_classes(self) -> dict[str, type[Any]]:
        """The dataclasses by their names."""
        return {name: kind for (_, name), kind in self.records.items()}

    def described_records(self) -> list[Any]:
        """The dataclasses as the worker's settings have them."""
        return [[module, name, described_fields(kind)] for (module, name), kind in self.records.items()]


def imported_names(source: str) -> list[tuple[str, str | None]]:
    """Module, and name in it or None, of all that a program imports at its top."""
    try:
        top = ast.parse(source).body
    except SyntaxError:
        return []
    return [(module, name) for node in top for module, name, *_ in imports(node)]


def described_fields(record: type[Any]) -> list[list[Any]]:
    return [[f.name] if f.default is MISSING else [f.name, f.default] for f in fields(record)]


def of_the_judge(function: FunctionType) -> Callable[..., Any]:
    """The function as a submission may call it: with the communicator that it was given."""

    @wraps(function)
    def call(*arguments: Any, **settings: Any) -> Any:
        if arguments and isinstance(arguments[0], RemoteObject):
            raise TypeError(
                f"{function.__name__} takes the communicator that your function was given, "
                f"not a {type(arguments[0]).__name__} of your own"
            )
        return function(*arguments, **settings)

    return call
