"""What a reader must read: for each subject the files that its imports lead to, and how many lines they have.

``python -m tests.reading`` prints them, and the imports between the parts of backends/. A subject's own
folder is followed to the end, as its files explain one another; of other folders a reader trusts the
docstrings. The chain of a strategy is what its class and the classes that it derives from take. Another
checkout's root may be given.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).parents[1]

# Each subject by the first of these files that exists, of today's name and of earlier ones.
SUBJECTS = {
    "conv2d": ["minigrad/ops/conv.py"],
    "max_pool2d": ["minigrad/ops/pool.py"],
    "batch_norm": ["minigrad/ops/batch_norm.py"],
    "softmax": ["minigrad/ops/softmax.py"],
    "layer_norm": ["minigrad/ops/layer_norm.py"],
    "naive data parallelism": ["backends/data_parallel/naive.py"],
    "naive ZeRO": ["backends/data_parallel/zero/naive.py"],
    "naive parameter server": ["backends/data_parallel/parameter_server/naive.py"],
    "naive compression": ["backends/data_parallel/compression/naive.py"],
    "naive spatial convolution": ["backends/model_parallel/spatial/naive.py"],
    "naive pipeline": ["backends/pipeline/naive.py"],
    "naive checkpoint": ["backends/checkpoint/naive.py"],
    "data parallelism": ["backends/data_parallel/data_parallel.py", "backends/data_parallel/replicated.py"],
    "bucketed": ["backends/data_parallel/bucketed.py"],
    "sharded (ZeRO)": ["backends/data_parallel/zero/sharded.py", "backends/data_parallel/sharded.py"],
    "parameter server": [
        "backends/data_parallel/parameter_server/parameter_server.py",
        "backends/data_parallel/parameter_server.py",
    ],
    "compression": ["backends/data_parallel/compression/compressed.py"],
    "split linear layer": ["backends/model_parallel/layers/linear.py"],
    "pipeline engine": ["backends/pipeline/engine.py"],
    "whole pipeline": ["backends/pipeline/pipeline.py"],
}

CHAINS = [
    "backends.data_parallel.data_parallel:DataParallel",
    "backends.data_parallel.bucketed:Bucketed",
    "backends.data_parallel.zero.sharded:Sharded",
    "backends.data_parallel.parameter_server.parameter_server:ParameterServer",
]
"""Strategies that are read with the classes from which they derive."""


def imported(file: Path, root: Path) -> Iterator[Path]:
    """The files of this project that ``file`` imports when it runs: not those that only annotations name."""
    for level, name, aliases in imports_in(file.read_text(encoding="utf-8")):
        package = [*file.relative_to(root).parts[:-level]] if level else []
        for alias in aliases:
            submodule = list(module(root, [*package, *name, *alias]))
            yield from submodule or module(root, [*package, *name])


@cache
def imports_in(text: str) -> list[tuple[int, list[str], list[list[str]]]]:
    """The imports in a text: the level, the module's name at its dots, and the names taken from it."""
    tree = ast.parse(text)
    typing = {
        id(node)
        for branch in ast.walk(tree)
        if isinstance(branch, ast.If) and names_type_checking(branch.test)
        for node in ast.walk(branch)
    }
    imports: list[tuple[int, list[str], list[list[str]]]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import) and id(node) not in typing:
            imports += [(0, alias.name.split("."), [[]]) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and id(node) not in typing:
            name = node.module.split(".") if node.module else []
            imports.append((node.level, name, [[alias.name] for alias in node.names]))
    return imports


def names_type_checking(test: ast.expr) -> bool:
    return any(
        "TYPE_CHECKING" in (getattr(node, "id", ""), getattr(node, "attr", "")) for node in ast.walk(test)
    )


def module(root: Path, name: list[str]) -> Iterator[Path]:
    """The file of the module ``name``, if it is one of this project's."""
    for file in (root.joinpath(*name).with_suffix(".py"), root.joinpath(*name, "__init__.py")):
        if name and name[0] in ("minigrad", "backends") and file.exists():
            yield file


def reading(file: Path, root: Path = ROOT) -> list[Path]:
    """``file`` and all files that its imports lead to in its own folder, without bare lists of names."""
    folder = root.joinpath(*file.relative_to(root).parts[:2])
    files, front = [file], [file]
    while front:
        for one in imported(front.pop(), root):
            if one not in files and one.is_relative_to(folder) and one.name != "__init__.py":
                files.append(one)
                front.append(one)
    return files


def chain(name: str) -> list[Path]:
    """The files that define the strategy ``module:class`` and the classes it derives from."""
    module_name, _, class_name = name.partition(":")
    kinds = getattr(import_module(module_name), class_name).__mro__
    return list(dict.fromkeys(Path(inspect.getfile(kind)) for kind in kinds if kind is not object))


def lines(files: list[Path]) -> int:
    return sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files)


def floors(root: Path) -> dict[str, set[str]]:
    """The parts of backends/ that each part imports, the parts that import least first."""
    parts: dict[str, set[str]] = {}
    for file in sorted((root / "backends").rglob("*.py")):
        part = part_of(file, root)
        others = {part_of(one, root) for one in imported(file, root) if one.is_relative_to(root / "backends")}
        parts.setdefault(part, set()).update(others - {part, "__init__"})

    def height(part: str) -> int:
        return 1 + max(map(height, parts[part]), default=0)

    return {part: parts[part] for part in sorted(parts, key=lambda part: (height(part), part))}


def part_of(file: Path, root: Path) -> str:
    return file.relative_to(root / "backends").parts[0].removesuffix(".py")


def main(root: Path = ROOT) -> None:
    """Print what to read, and which part of backends/ imports which, in Markdown."""
    print("| to understand | you read | lines |\n|---|---|---|")
    for subject, names in SUBJECTS.items():
        if file := next((root / name for name in names if (root / name).exists()), None):
            files = reading(file, root)
            shown = ", ".join(one.relative_to(root).as_posix() for one in files)
            print(f"| {subject} | {len(files)}: {shown} | {lines(files)} |")
    if root == ROOT:  # classes are those that this process imports
        print("\n| strategy | its class chain | lines |\n|---|---|---|")
        for name in CHAINS:
            shown = ", ".join(one.stem for one in chain(name))
            print(f"| {name.partition(':')[2]} | {shown} | {lines(chain(name))} |")
    print("\n| part of backends/ | imports |\n|---|---|")
    for part, others in floors(root).items():
        print(f"| {part} | {', '.join(sorted(others))} |")


if __name__ == "__main__":
    main(*(Path(argument) for argument in sys.argv[1:]))
