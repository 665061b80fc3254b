"""Statements of a kernel in the part of C++ that NumPy can compute for many threads, or lanes, at once.

    T total = 0;
    for (int k = 0; k < n; ++k) { if (x[i + k] > 0) { total = total + x[i + k]; } }
    y = total;

Declarations, assignments, ``if`` without ``else``, and loops whose bounds are the same in all threads.
Expressions are what C++ and Python have in common: + - * / % comparisons & | calls and ``raw[index]``. Of
integers, / and % cut off as in C++; ``choose`` computes all its operands, so guard an index by ``if``.
"""

import ast
import math
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType
from typing import Any

import numpy as np

# Two threads must not build syntax trees at once: Python 3.11.7 counts both depths in one place (gh-106905).
TREE = threading.RLock()
FUNCTIONS = {"choose": np.where, "erfc": np.vectorize(math.erfc, otypes=[float])} | {
    name: getattr(np, name) for name in ("exp", "expm1", "log", "log1p", "sqrt", "tanh", "floor", "ceil")
}
TYPES = {"int": "i4", "ptrdiff_t": "i8"}
STATEMENT = re.compile(
    r"\s*(?:for \(int (?P<k>\w+) = (?P<first>[^;]+); (?P=k) < (?P<end>[^;]+); \+\+(?P=k)\) \{"
    r"|if \((?P<condition>[^;{}]+)\) \{"
    r"|(?P<close>\})"
    r"|(?:(?P<kind>\w+) )?(?P<assignment>\w+(?:\[[^;{}=]+\])? = [^;{}]+)(?:;|$))"
)


class Lanes(dict[str, Any]):
    """The variables of a kernel's threads while its statements run; in an ``if``, of those where it holds."""

    def __init__(self, kinds: dict[str, np.dtype]) -> None:
        super().__init__()
        self.kinds = kinds
        self.active = np.arange(0)

    def run(
        self, code: CodeType, i: np.ndarray, whole: dict[str, Any], elements: dict[str, np.ndarray]
    ) -> None:
        """Execute the statements for the threads ``i``, which share what is in ``whole``."""
        self.clear()
        self.active = np.arange(len(i))
        self.update(whole, **elements, i=i)
        names = {**FUNCTIONS, "divided": divided, "remainder": np.fmod, "where": self.where}
        with np.errstate(all="ignore"):
            exec(code, names, self)

    def __getitem__(self, name: str) -> Any:
        value = super().__getitem__(name)
        if isinstance(value, np.ndarray) and value.ndim and len(self.active) < len(value):
            return value[self.active]
        return value

    def __setitem__(self, name: str, value: Any) -> None:
        if name not in self.kinds:  # the counter of a loop
            super().__setitem__(name, value)
            return
        if name not in self:
            super().__setitem__(name, np.zeros(len(super().__getitem__("i")), self.kinds[name]))
        super().__getitem__(name)[self.active] = value

    @contextmanager
    def where(self, condition: Any) -> Iterator[None]:
        before = self.active
        self.active = before[np.broadcast_to(condition, before.shape)]
        yield
        self.active = before


class Raw:
    """An array that threads read and write at indices of their own, in C order, whatever its memory order."""

    def __init__(self, values: np.ndarray, lanes: Lanes, writable: bool) -> None:
        self.values, self.lanes = values, lanes
        self.writer = np.full(values.size, -1) if writable else None

    def __getitem__(self, index: Any) -> np.ndarray:
        return self.values[self.checked(index)]

    def __setitem__(self, index: Any, value: Any) -> None:
        if self.writer is None:
            raise TypeError("a kernel writes to an input, which is const")
        index, threads = self.checked(index), self.lanes["i"]
        alone = (self.writer[index] == -1) | (self.writer[index] == threads)
        self.writer[index] = threads
        if not np.all(alone & (self.writer[index] == threads)):
            raise RuntimeError("two threads of a kernel write the same element")
        self.values[index] = value

    def checked(self, index: Any) -> np.ndarray:
        index = np.asarray(index)
        if index.size and not (index.min() >= 0 and index.max() < self.values.size):
            raise IndexError(f"a kernel uses elements {index.min()} to {index.max()} of {self.values.size}")
        return index


class Integers(ast.NodeTransformer):
    """/ and % as calls of ``divided`` and ``remainder``."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        name = {ast.Div: "divided", ast.Mod: "remainder"}.get(type(node.op))
        return ast.Call(ast.Name(name, ast.Load()), [node.left, node.right], []) if name else node


def divided(a: Any, b: Any) -> Any:
    a, b = np.asarray(a), np.asarray(b)
    if a.dtype.kind not in "iu" or b.dtype.kind not in "iu":
        return a / b
    return (a - np.fmod(a, b)) // b


def compiled(source: str) -> tuple[CodeType, dict[str, str]]:
    """Python for the statements, and the kinds of the variables that they declare."""
    lines, kinds, depth, at = [], {}, 0, 0
    source = source.strip()
    while at < len(source):
        match = STATEMENT.match(source, at)
        if match is None:
            raise NotImplementedError(f"the double does not know the statement {source[at : at + 60]!r}")
        at, part = match.end(), match.groupdict()
        if part["close"]:
            depth -= 1
            continue
        if part["k"]:
            line = f"for {part['k']} in range({part['first']}, {part['end']}):"
        elif part["condition"]:
            line = f"with where({part['condition']}):"
        else:
            line = part["assignment"]
            if part["kind"]:
                kinds[line.split()[0]] = part["kind"]
        lines.append("    " * depth + line)
        depth += line.endswith(":")
    if depth:
        raise SyntaxError(f"{source!r} opens and closes different numbers of braces")
    with TREE:
        tree = ast.fix_missing_locations(Integers().visit(ast.parse("\n".join(lines))))
        return compile(tree, "<kernel>", "exec"), kinds
