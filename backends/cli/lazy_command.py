"""A command whose module is imported when it is called: the list of all commands needs none of them."""

from __future__ import annotations

import ast
import gc
from functools import cached_property
from importlib.machinery import PathFinder
from importlib.metadata import EntryPoint
from importlib.util import find_spec
from typing import Any

import typer
from typer.core import TyperCommand

# What --help calls the value of an option that does not say, by the name of its type in typer or in Click.
METAVARS = {"boolean": "", "float": "NUMBER", "path": "FILE", "str": "NAME", "text": "NAME"}
METAVARS |= dict.fromkeys(("int", "int range", "integer", "integer range"), "N")


class LazyCommand(TyperCommand):
    """The command of an entry point, which names a function or a ``typer.Typer``.

    Its help in the list of all commands, which ``read_help`` reads from the source text, is the docstring of
    that function, or of the ``Typer``'s function with the command's name.
    """

    def __init__(self, entry: EntryPoint):
        super().__init__(entry.name)
        self.entry = entry

    def read_help(self) -> None:
        """Take the help from the source text; there is none where that cannot be read."""
        functions = docstrings(self.entry.module)
        self.help = functions.get(self.entry.attr, functions.get(self.entry.name))

    @cached_property
    def loaded(self) -> Any:
        """The command; ValueError for a wrong environment variable, RuntimeError if it cannot be loaded."""
        from minigrad.environment import check_variables  # these load NumPy
        from minigrad.lookup import object_of

        check_variables()
        collects = gc.isenabled()
        gc.disable()  # all that is loaded stays: looking for what does not is a tenth of the time
        try:
            app = object_of(self.entry)
        except (ImportError, AttributeError) as error:
            raise RuntimeError(
                f"the command {self.name} is {self.entry.value}, which cannot be loaded: {error}; install "
                "its package anew"
            ) from error
        finally:
            if collects:
                gc.enable()
        if not isinstance(app, typer.Typer):
            function, app = app, typer.Typer(add_completion=False)
            app.command()(function)
        command = typer.main.get_command(app)
        for one in getattr(command, "commands", {self.name: command}).values():
            for parameter in one.params:
                if parameter.metavar is None and parameter.param_type_name == "option":
                    parameter.metavar = METAVARS.get(parameter.type.name)
        return command

    def make_context(self, *arguments: Any, **settings: Any) -> Any:
        """The context in which the command itself runs."""
        return self.loaded.make_context(*arguments, **settings)


def docstrings(module: str) -> dict[str, str]:
    """The docstrings of a module's functions, by name, from its source; none where that cannot be read."""
    top, *inner = module.split(".")
    try:
        spec = find_spec(top)
        for name in inner:  # find_spec itself would import the packages around it, and what they import
            spec = PathFinder.find_spec(name, (spec and spec.submodule_search_locations) or [])
        with open(spec.origin if spec and spec.origin else "", "rb") as file:
            nodes = ast.parse(file.read()).body
    except (ImportError, OSError, SyntaxError, ValueError):  # a package that is gone or has no source
        return {}
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef)]
    return {function.name: ast.get_docstring(function) or "" for function in functions}
