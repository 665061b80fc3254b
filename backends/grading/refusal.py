"""What a submission may say, read from its text before any of it runs.

``python refusal.py`` reads ``[source, starter]`` as JSON and writes the refusal: a text may be made to
exhaust the parser, so it is parsed in a process of its own, which imports nothing of ours.

The rule is a list of what is allowed, allowed.toml. A module is only ever used by its dot and a name in that
list, so it is never a value; attributes that lead behind an object are refused wherever they stand.
This is the first fence, for whoever tries; the process that runs a submission has its own (fence.py).
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

LONGEST = 2**18  # bytes of a submission
SECONDS = 20  # for reading it

with Path(__file__).with_name("allowed.toml").open("rb") as file:
    LISTS = tomllib.load(file)
ALLOWED = {module: names.split() for module, names in LISTS["modules"].items()}
EXCEPTIONS = {n for n, x in vars(builtins).items() if isinstance(x, type) and issubclass(x, BaseException)}
BUILTINS = {*LISTS["builtins"].split()} | EXCEPTIONS
# The other built-in names; some are there only after site has run, or in another version of Python
REFUSED = {*dir(builtins), "copyright", "credits", "exit", "help", "license", "quit"} - BUILTINS
METHODS = {f"__{name}__" for name in LISTS["methods"].split()}
BEHIND = {*LISTS["behind"].split()}
FORMATS = ("format", "format_map")
CHANGES = "changes what it imports; a submission leaves that as it is"
PLAIN = "plain parts of Python, such as math, itertools, collections"
NDARRAY = (
    "uses np.ndarray other than to compare with it or in an annotation; np.empty and np.array make arrays"
)


def refusal_of(source: str, starter: str) -> str | None:
    """What `refusal` says, from a process of its own, which a text may bring down."""
    if len(source.encode(errors="replace")) > LONGEST:
        return f"the file is longer than {LONGEST // 1024} KiB; a submission is a program of a few pages"
    command = [sys.executable, "-I", "-S", __file__]
    try:
        found = subprocess.run(
            command, input=json.dumps([source, starter]), capture_output=True, text=True, timeout=SECONDS
        )
        return json.loads(found.stdout)
    except (subprocess.TimeoutExpired, ValueError):
        return "the file is nested too deeply, or is too much to read; write it in smaller parts"


def refusal(source: str, starter: str) -> str | None:
    """Why a submission is not graded, with the line; None where it says nothing that it may not say."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
            compile(tree, "submission", "exec", dont_inherit=True)
            table = symtable.symtable(source, "submission", "exec")
    except SyntaxError as error:
        return f"line {error.lineno or 1} is not Python: {error.msg}{pointed(error)}"
    except ValueError as error:  # a null byte, before Python 3.12
        return f"the file is not Python: {error}"
    given = {(module, name) for node in ast.walk(ast.parse(starter)) for module, name, *_ in imports(node)}
    faults = Reader(tree, table, given).faults()
    return min(faults, default=(0, None), key=lambda fault: fault[0])[1]


def pointed(error: SyntaxError) -> str:
    """The line of the mistake, and a caret below it."""
    line = (error.text or "").rstrip("\n")
    if not line.strip() or len(line) > 200:
        return ""
    indent = len(line) - len(line.lstrip())
    at = min(max((error.offset or 1) - 1 - indent, 0), len(line))
    return f"\n    {line.strip()}\n    {' ' * at}^"


def imports(node: ast.AST) -> Iterator[tuple[str, str | None, str, str]]:
    """(module, name in it or None, what it is called here, and what that is) of an import statement."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            root = alias.name.partition(".")[0]
            yield alias.name, None, alias.asname or root, alias.name if alias.asname else root
    elif isinstance(node, ast.ImportFrom):
        module = "." * node.level + (node.module or "")
        for alias in node.names:
            yield module, alias.name, alias.asname or alias.name, f"{module}.{alias.name}"


def offers(module: str, name: str) -> bool:
    """Whether ``name`` may be taken from ``module``."""
    names = ALLOWED.get(module, [])
    return name in names or (names == ["*"] and not name.startswith("_")) or f"{module}.{name}" in ALLOWED


class Reader:
    """Reads a program: ``modules`` says which modules a name may stand for, ``taken`` what was imported."""

    def __init__(self, tree: ast.Module, table: symtable.SymbolTable, given: set[tuple[str, str | None]]):
        self.tree, self.table, self.given = tree, table, given
        self.parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
        self.modules: dict[str, set[str]] = {}
        self.taken: dict[str, set[str]] = {}
        for node in self.parents:
            for _, name, called, whole in imports(node):
                kind = self.modules if name is None or whole in ALLOWED else self.taken
                kind.setdefault(called, set()).add(whole)
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

    def faults(self) -> Iterator[tuple[int, str]]:
        for node in [self.tree, *self.parents]:
            for text in self.told(node):
                line = getattr(node, "lineno", None) or getattr(self.parents.get(node), "lineno", 1)
                yield line, f"line {line} {text}"

    def told(self, node: ast.AST) -> Iterator[str]:
        """What is refused at this place of the program."""
        for module, name, *_ in imports(node):
            yield from self.import_refused(node, module, name)
        match node:
            case ast.Name():
                yield from self.name_refused(node)
            case ast.Attribute():
                yield from self.attribute_refused(node)
            case ast.Call(func=ast.Name(id="getattr" | "setattr" | "hasattr" as name), args=[_, _, *_]):
                text = literal(node.args[1])
                if text is None or isinstance(node.args[0], ast.Starred):
                    yield f"calls {name} with a name that only shows when it runs; write the attribute out"
                else:
                    yield from self.hidden_attribute(text)
                    if name == "setattr" and self.imported(node.args[0]):
                        yield CHANGES
            case ast.MatchClass():
                for name in node.kwd_attrs:
                    yield from self.hidden_attribute(name)
            case ast.ClassDef() if node.keywords:
                yield "makes a class with keywords, as metaclass=; write a plain class"
            case ast.Subscript(ctx=ast.Store() | ast.Del()) if self.imported(node.value):
                yield CHANGES
        for name in identifiers(node):
            if dunder(name) and name not in METHODS:
                yield f"uses {name}, a name of Python's own that leads behind what a submission is given"

    def import_refused(self, node: ast.AST, module: str, name: str | None) -> Iterator[str]:
        scope = self.parents.get(node)
        while not isinstance(
            scope, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | ast.Module | None
        ):
            scope = self.parents.get(scope)
        if isinstance(scope, ast.ClassDef):
            yield "imports within a class; import at the top of the file"
        if (module, name) in self.given:
            return
        if module.partition(".")[0] in ALLOWED and module not in ALLOWED:
            yield f"imports {module}, which a submission may not have"
        elif module not in ALLOWED:
            yield f"imports {module}; import what the starter imports, NumPy, or {PLAIN}"
        elif name == "*":
            yield f"imports all of {module}; name what you import"
        elif name is not None and not offers(module, name):
            yield f"takes {module}.{name}, which a submission may not have"

    def name_refused(self, node: ast.Name) -> Iterator[str]:
        name, parent = node.id, self.parents[node]
        if name in ("getattr", "setattr", "hasattr") and name in self.builtin:
            if not (isinstance(parent, ast.Call) and parent.func is node and len(parent.args) > 1):
                yield f"uses {name} other than to call it with a name that is written out"
        elif name == "type" and name in self.builtin:
            if not (plain_call(parent, node) and self.looked_at(parent)):
                yield "uses type other than to compare type(x) with a class; isinstance(x, ...) does"
        elif name in REFUSED and name in self.builtin and isinstance(node.ctx, ast.Load):
            yield f"uses {name}, which hides what a program does or leads out of it"
        elif name in self.modules and isinstance(node.ctx, ast.Load):
            if not (isinstance(parent, ast.Attribute) and parent.value is node):
                yield f"uses the module {name} as a value; write {name}.something"
        elif "numpy.ndarray" in self.taken.get(name, ()) and not self.looked_at(node):
            yield NDARRAY

    def attribute_refused(self, node: ast.Attribute) -> Iterator[str]:
        parent = self.parents[node]
        if not plain_format(node, parent):
            yield from self.hidden_attribute(node.attr)
        for module in self.dotted(node.value):
            whole = f"{module}.{node.attr}"
            if not offers(module, node.attr):
                yield f"takes {whole}, which a submission may not have"
            elif whole in ALLOWED and not (isinstance(parent, ast.Attribute) and parent.value is node):
                yield f"uses the module {whole} as a value; write {whole}.something"
            elif whole == "numpy.ndarray" and not self.looked_at(node):
                yield NDARRAY
        if isinstance(node.ctx, ast.Store | ast.Del) and self.imported(node.value):
            yield CHANGES

    def hidden_attribute(self, name: str) -> Iterator[str]:
        if name in FORMATS:
            yield f"uses .{name}, which can look behind what it is given; write an f-string"
        elif name in BEHIND or (dunder(name) and name not in METHODS):
            yield f"uses .{name}, which leads behind what a submission is given"

    def dotted(self, node: ast.AST) -> set[str]:
        """The modules that an expression may be."""
        if isinstance(node, ast.Name):
            return self.modules.get(node.id, set())
        if isinstance(node, ast.Attribute):
            return {f"{m}.{node.attr}" for m in self.dotted(node.value)} & ALLOWED.keys()
        return set()

    def imported(self, node: ast.AST) -> bool:
        """Whether an expression begins with an imported name."""
        while isinstance(node, ast.Attribute | ast.Subscript):
            node = node.value
        return isinstance(node, ast.Name) and (node.id in self.modules or node.id in self.taken)

    def looked_at(self, node: ast.AST) -> bool:
        """Whether a class is only compared, named, or written as an annotation: nothing gets hold of it."""
        parent, child = self.parents[node], node
        if isinstance(parent, ast.Attribute):
            return parent.attr == "__name__" and isinstance(parent.ctx, ast.Load)
        while isinstance(parent, ast.Tuple | ast.List | ast.BinOp | ast.Subscript):
            if isinstance(parent, ast.BinOp) and not (self.plain(parent.left) and self.plain(parent.right)):
                return False
            if isinstance(parent, ast.Subscript) and not self.plain(parent.value):
                return False
            parent, child = self.parents[parent], parent
        match parent:
            case ast.Compare(left=left, ops=ops, comparators=others):
                same = all(isinstance(op, ast.Is | ast.IsNot) for op in ops)
                return same or all(map(self.plain, [left, *others]))
            case ast.Call(func=ast.Name(id="isinstance" | "issubclass" as name), args=[_, second]):
                return second is child and name not in self.bound
            case ast.arg() | ast.FunctionDef() | ast.AsyncFunctionDef() | ast.AnnAssign():
                return child in (getattr(parent, "annotation", None), getattr(parent, "returns", None))
            case ast.MatchClass(cls=cls):
                return cls is child
        return False

    def plain(self, node: ast.AST) -> bool:
        """Whether it is a class, or several, that compare and combine as classes do: none of its own."""
        match node:
            case ast.Call(func=ast.Name(id="type")):
                return "type" not in self.bound
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                return all(map(self.plain, parts))
            case ast.BinOp(left=left, right=right):
                return self.plain(left) and self.plain(right)
            case ast.Subscript(value=value):
                return self.plain(value)
            case ast.Name(id=name):
                return name in BUILTINS and name not in self.bound
            case ast.Attribute(value=value):
                return bool(self.dotted(value))
            case ast.Constant():
                return True
        return False


def dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def identifiers(node: ast.AST) -> Iterator[str]:
    """The names at this place, but for attributes, and for modules, which have lists of their own."""
    if not isinstance(node, ast.Constant | ast.Attribute | ast.ImportFrom):
        for _, value in ast.iter_fields(node):
            yield from (x for x in (value if isinstance(value, list) else [value]) if isinstance(x, str))


def literal(node: ast.AST) -> str | None:
    return node.value if isinstance(node, ast.Constant) and type(node.value) is str else None


def plain_call(call: ast.AST, function: ast.AST) -> bool:
    """Whether it calls the function with one value."""
    match call:
        case ast.Call(func=func, args=[one], keywords=[]):
            return func is function and not isinstance(one, ast.Starred)
    return False


def plain_format(node: ast.Attribute, parent: ast.AST) -> bool:
    """Whether it formats a text that is written there, whose fields are names and numbers alone."""
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
        print(json.dumps(refusal(*json.load(sys.stdin))))
    except (RecursionError, MemoryError):
        sys.exit(1)
