"""What a submission reaches by importing, read from its text: nothing of it runs here."""

from __future__ import annotations

import ast

HIDDEN = "?"  # stands for whatever is reached by a name that is made while the program runs
INWARD = ("__self__", "__closure__")  # attributes that lead behind what one is given
MAKES_CODE = {"exec", "eval", "compile"}
IMPORTERS = {"importlib.import_module", "importlib.reload", "builtins.__import__", "runpy.run_module"}


def reached(source: str) -> dict[str, int]:
    """The dotted names that a program imports or looks up in what it imported, each with its first line.

    ``module.*`` stands for all of a module; ``?`` for what the text does not tell. Raises SyntaxError.
    """
    finder = Finder()
    finder.visit(ast.parse(source))
    return finder.found


class Finder(ast.NodeVisitor):
    """Walks the program in the order it is written; ``bound`` says what each imported name stands for."""

    def __init__(self) -> None:
        self.found: dict[str, int] = {}
        self.bound: dict[str, str] = {"__import__": "builtins.__import__", "__builtins__": "builtins"}

    def note(self, name: str, node: ast.AST) -> None:
        name = HIDDEN if name.startswith("sys.modules") else name
        self.found.setdefault(name, getattr(node, "lineno", 0))

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self.note(alias.name, node)
            self.bound[alias.asname or alias.name.split(".")[0]] = (
                alias.name if alias.asname else alias.name.split(".")[0]
            )

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for alias in node.names:
            name = f"{'.' * node.level}{node.module or ''}.{alias.name}"
            self.note(name, node)
            self.bound[alias.asname or alias.name] = name

    def visit_Name(self, node: ast.Name) -> None:
        if node.id in MAKES_CODE and isinstance(node.ctx, ast.Load):
            self.note(HIDDEN, node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if node.attr in INWARD:
            self.note(node.attr, node)
        if name := self.dotted(node):
            whole, _, last = name.rpartition(".")
            self.note(f"{whole}.*" if last == "__dict__" else name, node)
        else:
            self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if self.dotted(node.value) == "sys.modules" and (name := literal(node.slice)):
            self.note(f"{name}.*", node)
        else:
            self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        called = self.dotted(node.func) or ""
        first = literal(node.args[0]) if node.args else None
        if called in IMPORTERS or called == "sys.modules.get":
            self.note(f"{first}.*" if first else HIDDEN, node)
            arguments: list[ast.expr] = node.args[1:]
        elif called.startswith(("importlib.", "runpy.")):
            self.note(HIDDEN, node)
            arguments = node.args
        elif isinstance(node.func, ast.Name) and node.func.id in ("getattr", "vars") and node.args:
            if owner := self.dotted(node.args[0]):
                name = literal(node.args[1]) if len(node.args) > 1 else None
                self.note(f"{owner}.{name or '*'}", node)
            arguments = node.args
        else:
            self.visit(node.func)
            arguments = node.args
        for argument in (*arguments, *(keyword.value for keyword in node.keywords)):
            self.visit(argument)

    def dotted(self, node: ast.AST) -> str | None:
        """``a.b.c`` as the names it was imported by; None where it does not begin with an imported one."""
        if isinstance(node, ast.Name):
            return self.bound.get(node.id)
        if isinstance(node, ast.Attribute) and (owner := self.dotted(node.value)):
            return f"{owner}.{node.attr}"
        return None


def literal(node: ast.AST) -> str | None:
    """The text that is written there, if it is one."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def defined(source: str) -> set[str]:
    """The functions and classes at the top of a program."""
    return {node.name for node in ast.parse(source).body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
