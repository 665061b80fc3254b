"""Checks the text of a submission before any of it runs.

``python static_check.py`` reads ``[source, starter]`` as JSON and writes the first violation: a text may
exhaust the parser, so a separate process parses it, which imports nothing of this package.

The rule is the list of allowed names in allow_list.toml. A module may be used only as ``module.name`` with a
name in that list, so it is never a value; attributes that lead behind an object are refused everywhere.
This is the first protection, and not the last one: the process that runs a submission has its own
(worker/sandbox.py), and holds nothing to be found.
"""

from __future__ import annotations

import ast
import builtins
import json
import string
import subprocess
import symtable
import sys
import tomllib
import warnings
from collections.abc import Iterator
from pathlib import Path

MAX_BYTES = 2**18  # of a submission
SECONDS = 20  # for checking it

with Path(__file__).with_name("allow_list.toml").open("rb") as file:
    LISTS = tomllib.load(file)
ALLOWED = {module: names.split() for module, names in LISTS["modules"].items()}
EXCEPTIONS = {n for n, x in vars(builtins).items() if isinstance(x, type) and issubclass(x, BaseException)}
BUILTINS = {*LISTS["builtins"].split()} | EXCEPTIONS
# The other built-in names; some are there only after site has run, or in another version of Python
REFUSED = {*dir(builtins), "copyright", "credits", "exit", "help", "license", "quit"} - BUILTINS
METHODS = {f"__{name}__" for name in LISTS["methods"].split()}
TEXTS = METHODS | {"__main__"}
BEHIND = {*LISTS["behind"].split()}
NAMED_TUPLE = {"_asdict", "_fields", "_make", "_replace"}
FORMATS = ("format", "format_map")
CHANGES = "changes what it imports; a submission leaves that as it is"
PLAIN = "plain parts of Python, such as math, itertools, collections"
NDARRAY = (
    "uses np.ndarray other than to compare with it or in an annotation; np.empty and np.array make arrays"
)


def check_in_process(source: str, starter: str) -> str | None:
    """The result of `check`, from a separate process, which the text may crash."""
    if len(source.encode(errors="replace")) > MAX_BYTES:
        return f"the file is longer than {MAX_BYTES // 1024} KiB; a submission is a program of a few pages"
    command, texts = [sys.executable, "-I", "-S", __file__], json.dumps([source, starter])
    try:
        process = subprocess.run(command, input=texts, capture_output=True, text=True, timeout=SECONDS)
        return json.loads(process.stdout)
    except (subprocess.TimeoutExpired, ValueError):
        return "the file is nested too deeply, or is too much to read; write it in smaller parts"


def check(source: str, starter: str) -> str | None:
    """The first violation, with its line; None where the text is allowed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
            compile(tree, "submission", "exec", dont_inherit=True)
            table = symtable.symtable(source, "submission", "exec")
    except SyntaxError as error:
        return f"line {error.lineno or 1} is not Python: {error.msg}{excerpt(error)}"
    except ValueError as error:  # a null byte, before Python 3.12
        return f"the file is not Python: {error}"
    allowed = {(module, name) for node in ast.walk(ast.parse(starter)) for module, name, *_ in imports(node)}
    violations = Checker(tree, table, allowed).violations()
    return min(violations, default=(0, None), key=lambda violation: violation[0])[1]


def excerpt(error: SyntaxError) -> str:
    """The line of the mistake, and a caret below it."""
    line = (error.text or "").rstrip("\n")
    if not line.strip() or len(line) > 200:
        return ""
    indent = len(line) - len(line.lstrip())
    at = min(max((error.offset or 1) - 1 - indent, 0), len(line))
    return f"\n    {line.strip()}\n    {' ' * at}^"


def imports(node: ast.AST) -> Iterator[tuple[str, str | None, str, str]]:
    """Module, name in it or None, name here, and full name of what each part of an import statement binds."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            root = alias.name.partition(".")[0]
            yield alias.name, None, alias.asname or root, alias.name if alias.asname else root
    elif isinstance(node, ast.ImportFrom):
        module = "." * node.level + (node.module or "")
        for alias in node.names:
            yield module, alias.name, alias.asname or alias.name, f"{module}.{alias.name}"


def is_allowed(module: str, name: str) -> bool:
    """Whether ``name`` may be taken from ``module``."""
    names = ALLOWED.get(module, [])
    return name in names or (names == ["*"] and not name.startswith("_")) or f"{module}.{name}" in ALLOWED


class Checker:
    """Checks a program; ``modules`` and ``imports`` are what each name may stand for, as full names.

    ``starter_imports`` are the (module, name) pairs that the starter imports: they are allowed, too.
    """

    def __init__(
        self, tree: ast.Module, table: symtable.SymbolTable, starter_imports: set[tuple[str, str | None]]
    ):
        self.tree, self.table, self.starter_imports = tree, table, starter_imports
        self.parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
        self.modules: dict[str, set[str]] = {}
        self.imports: dict[str, set[str]] = {}
        for node in self.parents:
            for _, name, local, whole in imports(node):
                kind = self.modules if name is None or whole in ALLOWED else self.imports
                kind.setdefault(local, set()).add(whole)
        self.own_names = {name for node in self.parents for name in bound_names(node)}
        symbols = [(block, symbol) for block in blocks(table) for symbol in block.get_symbols()]
        self.bound = {
            s.get_name() for _, s in symbols if s.is_assigned() or s.is_parameter() or s.is_imported()
        }
        # A name that is bound in a function is that function's; elsewhere it may be Python's own
        self.builtin = {
            s.get_name()
            for block, s in symbols
            if s.is_referenced() and (s.is_global() or block.get_type() in ("module", "class"))
        }

    def violations(self) -> Iterator[tuple[int, str]]:
        for node in [self.tree, *self.parents]:
            for text in self.violations_at(node):
                line = getattr(node, "lineno", None) or getattr(self.parents.get(node), "lineno", 1)
                yield line, f"line {line} {text}"

    def violations_at(self, node: ast.AST) -> Iterator[str]:
        """The violations at this node."""
        for module, name, *_ in imports(node):
            yield from self.check_import(node, module, name)
        match node:
            case ast.Name():
                yield from self.check_name(node)
            case ast.Attribute():
                yield from self.check_attribute(node)
            case ast.Call(func=ast.Name(id="getattr" | "setattr" | "hasattr" as name), args=[_, _, *_]):
                text = literal(node.args[1])
                if text is None or isinstance(node.args[0], ast.Starred):
                    yield f"calls {name} with a name that only shows when it runs; write the attribute out"
                else:
                    yield from self.check_attribute_name(text)
                    if name == "setattr" and self.is_imported(node.args[0]):
                        yield CHANGES
            case ast.Constant(value=str(text)) if text.strip("_") and dunder(text) and text not in TEXTS:
                yield f"writes {text}, a name of Python's own that leads behind what a submission is given"
            case ast.MatchClass():
                for name in node.kwd_attrs:
                    yield from self.check_attribute_name(name)
            case ast.ClassDef() if node.keywords:
                yield "makes a class with keywords, as metaclass=; write a plain class"
            case ast.Subscript(ctx=ast.Store() | ast.Del()) if self.is_imported(node.value):
                yield CHANGES
        for name in identifiers(node):
            if dunder(name) and name not in METHODS:
                yield f"uses {name}, a name of Python's own that leads behind what a submission is given"

    def check_import(self, node: ast.AST, module: str, name: str | None) -> Iterator[str]:
        scope = self.parents.get(node)
        while not isinstance(
            scope, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | ast.Module | None
        ):
            scope = self.parents.get(scope)
        if isinstance(scope, ast.ClassDef):
            yield "imports within a class; import at the top of the file"
        if (module, name) in self.starter_imports:
            return
        if module.partition(".")[0] in ALLOWED and module not in ALLOWED:
            yield f"imports {module}, which a submission may not have"
        elif module not in ALLOWED:
            yield f"imports {module}; import what the starter imports, NumPy, or {PLAIN}"
        elif name == "*":
            yield f"imports all of {module}; name what you import"
        elif name is not None and not is_allowed(module, name):
            yield f"takes {module}.{name}, which a submission may not have"

    def check_name(self, node: ast.Name) -> Iterator[str]:
        name, parent = node.id, self.parents[node]
        if name in ("getattr", "setattr", "hasattr") and name in self.builtin:
            if not (isinstance(parent, ast.Call) and parent.func is node and len(parent.args) > 1):
                yield f"uses {name} other than to call it with a name that is written out"
        elif name == "type" and name in self.builtin:
            if not (is_plain_call(parent, node) and self.is_only_inspected(parent)):
                yield "uses type other than to compare type(x) with a class; isinstance(x, ...) does"
        elif name in REFUSED and name in self.builtin and isinstance(node.ctx, ast.Load):
            yield f"uses {name}, which hides what a program does or leads out of it"
        elif name in self.modules and isinstance(node.ctx, ast.Load):
            if not (isinstance(parent, ast.Attribute) and parent.value is node):
                yield f"uses the module {name} as a value; write {name}.something"
        elif "numpy.ndarray" in self.imports.get(name, ()) and not self.is_only_inspected(node):
            yield NDARRAY

    def check_attribute(self, node: ast.Attribute) -> Iterator[str]:
        parent = self.parents[node]
        if not is_plain_format(node, parent):
            yield from self.check_attribute_name(node.attr)
        for module in self.modules_of(node.value):
            whole = f"{module}.{node.attr}"
            if not is_allowed(module, node.attr):
                yield f"takes {whole}, which a submission may not have"
            elif whole in ALLOWED and not (isinstance(parent, ast.Attribute) and parent.value is node):
                yield f"uses the module {whole} as a value; write {whole}.something"
            elif whole == "numpy.ndarray" and not self.is_only_inspected(node):
                yield NDARRAY
        if isinstance(node.ctx, ast.Store | ast.Del) and self.is_imported(node.value):
            yield CHANGES

    def check_attribute_name(self, name: str) -> Iterator[str]:
        if name in FORMATS:
            yield f"uses .{name}, which can look behind what it is given; write an f-string"
        elif name in BEHIND or (dunder(name) and name not in METHODS):
            yield f"uses .{name}, which leads behind what a submission is given"
        elif self.is_private(name):
            yield f"uses .{name}, which is no name of its own; one that begins with _ is another's"

    def is_private(self, name: str) -> bool:
        """Whether an attribute begins with an underscore, and the program gives the name to nothing."""
        plain = dunder(name) or not name.startswith("_")
        return not plain and name not in NAMED_TUPLE and name not in self.own_names

    def modules_of(self, node: ast.AST) -> set[str]:
        """The modules that an expression may be."""
        if isinstance(node, ast.Name):
            return self.modules.get(node.id, set())
        if isinstance(node, ast.Attribute):
            return {f"{m}.{node.attr}" for m in self.modules_of(node.value)} & ALLOWED.keys()
        return set()

    def is_imported(self, node: ast.AST) -> bool:
        """Whether an expression begins with an imported name."""
        while isinstance(node, ast.Attribute | ast.Subscript):
            node = node.value
        return isinstance(node, ast.Name) and (node.id in self.modules or node.id in self.imports)

    def is_only_inspected(self, node: ast.AST) -> bool:
        """Whether a class is only compared, named, or an annotation, so that nothing obtains it."""
        parent, child = self.parents[node], node
        if isinstance(parent, ast.Attribute):
            return parent.attr == "__name__" and isinstance(parent.ctx, ast.Load)
        while isinstance(parent, ast.Tuple | ast.List | ast.BinOp | ast.Subscript):
            if isinstance(parent, ast.BinOp) and not (
                self.is_class(parent.left) and self.is_class(parent.right)
            ):
                return False
            if isinstance(parent, ast.Subscript) and not self.is_class(parent.value):
                return False
            parent, child = self.parents[parent], parent
        match parent:
            case ast.Compare(left=left, ops=ops, comparators=others):
                same = all(isinstance(op, ast.Is | ast.IsNot) for op in ops)
                return same or all(map(self.is_class, [left, *others]))
            case ast.Call(func=ast.Name(id="isinstance" | "issubclass" as name), args=[_, second]):
                return second is child and name not in self.bound
            case ast.arg() | ast.FunctionDef() | ast.AsyncFunctionDef() | ast.AnnAssign():
                return child in (getattr(parent, "annotation", None), getattr(parent, "returns", None))
            case ast.MatchClass(cls=cls):
                return cls is child
        return False

    def is_class(self, node: ast.AST) -> bool:
        """Whether it is one or more classes of Python or NumPy; no submission can change their operators."""
        match node:
            case ast.Call(func=ast.Name(id="type")):
                return "type" not in self.bound
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                return all(map(self.is_class, parts))
            case ast.BinOp(left=left, right=right):
                return self.is_class(left) and self.is_class(right)
            case ast.Subscript(value=value):
                return self.is_class(value)
            case ast.Name(id=name):
                return name in BUILTINS and name not in self.bound
            case ast.Attribute(value=value):
                return bool(self.modules_of(value))
            case ast.Constant():
                return True
        return False


def dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def identifiers(node: ast.AST) -> Iterator[str]:
    """The names at this place, but for attributes and modules, which have lists of their own."""
    if not isinstance(node, ast.Constant | ast.Attribute | ast.ImportFrom):
        for _, value in ast.iter_fields(node):
            yield from (x for x in (value if isinstance(value, list) else [value]) if isinstance(x, str))


def bound_names(node: ast.AST) -> Iterator[str]:
    """The names that a program gives to something at this place, also as attributes."""
    match node:
        case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
            yield name
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.Constant(value=str(name)):  # in __slots__, or for setattr
            yield name


def literal(node: ast.AST) -> str | None:
    return node.value if isinstance(node, ast.Constant) and type(node.value) is str else None


def is_plain_call(call: ast.AST, function: ast.AST) -> bool:
    """Whether it calls the function with one value."""
    match call:
        case ast.Call(func=func, args=[one], keywords=[]):
            return func is function and not isinstance(one, ast.Starred)
    return False


def is_plain_format(node: ast.Attribute, parent: ast.AST) -> bool:
    """Whether it formats a literal text whose fields are only names and numbers."""
    text = literal(node.value)
    if text is None or node.attr != "format" or not (isinstance(parent, ast.Call) and parent.func is node):
        return False
    try:
        fields = list(string.Formatter().parse(text))
    except ValueError:
        return False
    return not any(
        {*"{.["} & {*f"{field or ''}{'{' if '{' in (spec or '') else ''}"} for _, field, spec, _ in fields
    )


def blocks(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    yield table
    for child in table.get_children():
        yield from blocks(child)


if __name__ == "__main__":
    try:
        print(json.dumps(check(*json.load(sys.stdin))))
    except (RecursionError, MemoryError):
        sys.exit(1)
