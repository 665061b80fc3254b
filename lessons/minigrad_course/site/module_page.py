"""A page for a Python file: its docstring, the public classes and functions, and the source."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from html import escape
from pathlib import PurePosixPath

from .markdown import Markdown, code
from .template import Link

EXAMPLE = re.compile(r"^ *>>> .+(?:\n.*\S.*)*", re.MULTILINE)
Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def dotted(path: PurePosixPath) -> str:
    """The name by which Python imports the file."""
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


def docstring(node: ast.Module | Definition) -> str:
    """The docstring as Markdown: an example with its output is a block of code."""
    text = ast.get_docstring(node) or ""
    return EXAMPLE.sub(lambda match: f"```pycon\n{inspect.cleandoc(match[0])}\n```", text)


def summary(source: str) -> str:
    """The first sentence of the docstring."""
    text = ast.get_docstring(ast.parse(source)) or ""
    return " ".join(text.partition("\n\n")[0].split()).partition(". ")[0].rstrip(".:")


def body(path: PurePosixPath, source: str, markdown: Markdown) -> str:
    tree = ast.parse(source)
    parts = [f"<h1>{dotted(path)}</h1>", markdown.render(docstring(tree), lowest=2)]
    for level, name, node in definitions(tree):
        markdown.known.add(name)
        parts.append(
            f'<section class="definition"><h{level} id="{escape(name)}">{escape(name)}</h{level}>\n'
            f"{code(signature(node))}{markdown.render(docstring(node), lowest=4)}</section>"
        )
    parts.append(f'<details class="source"><summary>Source of {path}</summary>\n{code(source)}</details>')
    return "\n".join(parts)


def contents(source: str, url: str) -> list[Link]:
    """Links to the public classes and functions of the page."""
    return [Link(f"{url}#{name}", name) for level, name, _ in definitions(ast.parse(source)) if level == 2]


def definitions(tree: ast.Module) -> Iterator[tuple[int, str, Definition]]:
    """Public classes and functions at level 2 of headings, and methods with a docstring at level 3."""
    for node in tree.body:
        if not isinstance(node, Definition) or node.name.startswith("_"):
            continue
        yield 2, node.name, node
        for method in node.body if isinstance(node, ast.ClassDef) else ():
            if isinstance(method, ast.FunctionDef) and ast.get_docstring(method):
                yield 3, f"{node.name}.{method.name}", method


def signature(node: Definition) -> str:
    """The lines that open the definition, decorators included, as one would write them."""
    decorators = "".join(f"@{ast.unparse(decorator)}\n" for decorator in node.decorator_list)
    if isinstance(node, ast.ClassDef):
        bases = ", ".join(ast.unparse(base) for base in [*node.bases, *node.keywords])
        return f"{decorators}class {node.name}{f'({bases})' if bases else ''}"
    result = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    arguments = ast.unparse(node.args)
    if len(arguments) + len(node.name) + len(result) > 80:
        separated = [ast.unparse(part) for part in split(node.args)]
        arguments = "\n    " + ",\n    ".join(separated) + ",\n"
    return inspect.cleandoc(f"{decorators}def {node.name}") + f"({arguments}){result}"


def split(arguments: ast.arguments) -> Iterator[ast.arguments]:
    """Each argument by itself, with its default, so that each gets a line."""
    names = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(names) - len(arguments.defaults)) + list(arguments.defaults)

    def only(args: list[ast.arg], default: ast.expr | None, vararg: ast.arg | None = None, kwarg=None):
        return ast.arguments([], args, vararg, [], [], kwarg, [default] if default else [])

    for name, default in zip(names, defaults, strict=True):
        yield only([name], default)
    if arguments.vararg or arguments.kwonlyargs:
        yield only([], None, arguments.vararg or ast.arg(""))
    for name, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        yield only([name], default)
    if arguments.kwarg:
        yield only([], None, None, arguments.kwarg)
