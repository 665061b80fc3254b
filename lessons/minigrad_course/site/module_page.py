"""A page for a Python file: its docstring, the public classes and functions, and the source."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import PurePosixPath
from types import MappingProxyType

from .markdown import Markdown, code
from .template import Link

EXAMPLE = re.compile(r"^ *>>> .+(?:\n.*\S.*)*", re.MULTILINE)
HELPERS = "helpers-of-this-module"
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
    return first_sentence(ast.parse(source))


def first_sentence(node: ast.Module | Definition) -> str:
    text = ast.get_docstring(node) or ""
    return " ".join(text.partition("\n\n")[0].split()).partition(". ")[0].rstrip(".:")


def body(
    path: PurePosixPath,
    source: str,
    markdown: Markdown,
    public: Sequence[str] = (),
    classes: Mapping[str, ast.ClassDef] = MappingProxyType({}),
) -> str:
    """The page: what is ``public`` comes before helpers; ``classes`` are those of the library, by name."""
    tree = ast.parse(source)
    parts = [f"<h1>{dotted(path)}</h1>", markdown.render(docstring(tree), lowest=2)]
    for level, name, node in in_order(tree, public):
        if node is None:
            parts.append(f'<h2 id="{HELPERS}">{name}</h2>')
            continue
        markdown.known.add(name)
        call = constructor(node, classes) if isinstance(node, ast.ClassDef) else ""
        parts.append(
            f'<section class="definition"><h{level} id="{escape(name)}">{escape(name)}</h{level}>\n'
            f"{code(signature(node) + call)}{markdown.render(docstring(node), lowest=4)}</section>"
        )
    parts.append(f'<details class="source"><summary>Source of {path}</summary>\n{code(source)}</details>')
    return "\n".join(parts)


def contents(source: str, url: str, public: Sequence[str] = ()) -> list[Link]:
    """Links to the public classes and functions of the page, and to its helpers."""
    entries = in_order(ast.parse(source), public)
    return [
        Link(f"{url}#{name if node else HELPERS}", name)
        for level, name, node in entries
        if level == 2 and (node is None or not public or name in public)
    ]


def in_order(tree: ast.Module, public: Sequence[str]) -> Sequence[tuple[int, str, Definition | None]]:
    """The definitions: the ``public`` ones, then a heading without a definition, then the helpers."""
    known = list(definitions(tree))
    first = [entry for entry in known if entry[1].partition(".")[0] in public]
    others = [entry for entry in known if entry not in first]
    return [*first, (2, "Helpers of this module", None), *others] if first and others else known


def definitions(tree: ast.Module) -> Iterator[tuple[int, str, Definition]]:
    """Public classes and functions at level 2 of headings, and methods with a docstring at level 3."""
    for node in tree.body:
        if not isinstance(node, Definition) or node.name.startswith("_"):
            continue
        yield 2, node.name, node
        for method in node.body if isinstance(node, ast.ClassDef) else ():
            if isinstance(method, ast.FunctionDef) and ast.get_docstring(method) and is_public(method.name):
                yield 3, f"{node.name}.{method.name}", method


def is_public(name: str) -> bool:
    return not name.startswith("_") or name.startswith("__")


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


def constructor(node: ast.ClassDef, classes: Mapping[str, ast.ClassDef]) -> str:
    """A line that calls the class with its settings, which may be those of a base class or fields."""
    inits = [one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__"]
    fields = [one for one in node.body if isinstance(one, ast.AnnAssign)]
    bases = [ast.unparse(base).partition("[")[0] for base in node.bases]
    if inits:
        arguments = inits[0].args
        without_self = ast.arguments(
            [], arguments.args[1:], arguments.vararg, arguments.kwonlyargs, arguments.kw_defaults,
            arguments.kwarg, arguments.defaults,
        )  # fmt: skip
        names = [ast.unparse(part) for part in split(without_self)]
    elif fields and (
        "NamedTuple" in bases or any("dataclass" in ast.unparse(d) for d in node.decorator_list)
    ):
        names = [ast.unparse(field) for field in fields]
    else:
        known = (classes[base] for base in bases if base in classes and classes[base] is not node)
        calls = (constructor(base, classes).replace(base.name, node.name, 1) for base in known)
        return next((call for call in calls if call), "")
    call = f"\n{node.name}({', '.join(names)})"
    return call if len(call) <= 80 else f"\n{node.name}(\n    " + ",\n    ".join(names) + ",\n)"


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
