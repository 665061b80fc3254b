"""The tests mirror the code, folder by folder: a file of laws names the files of code that it proves.

It begins with ``Laws of backends/comm/wire.py: ...``, where a name without a folder is in the folder of the
path before it, as in ``Laws of minigrad/ops/pool.py and pool1d.py: ...``; a folder ends with a slash.
"""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MIRRORS = {
    "tests/minigrad": "minigrad",
    "tests/backends": "backends",
    "tests/minigrad_course": "lessons/minigrad_course",
}
TOGETHER = ("tests/mpi", "tests/interrupts", "tests/lessons")  # several parts of the code run there
PATH = r"[\w/]+(?:\.py|\.mjs|/)"
TEST_FILES = [path.relative_to(ROOT) for path in sorted((ROOT / "tests").rglob("*.py"))]
LAWS = [path for path in TEST_FILES if re.fullmatch(r"test_\w+\.py|\w+_laws\.py", path.name)]
MIRRORING = [path for path in LAWS if any(path.is_relative_to(folder) for folder in MIRRORS)]
NAMING = [*MIRRORING, *(path for path in LAWS if any(path.is_relative_to(folder) for folder in TOGETHER))]


@cache
def said_by(path):
    return " ".join((ast.get_docstring(ast.parse((ROOT / path).read_text(encoding="utf-8"))) or "").split())


def paths_in(text):
    """The paths in ``Laws of PATH, PATH and PATH: ...``, or None where a docstring begins otherwise."""
    names = re.match(rf"Laws of ({PATH}(?:(?:, | and ){PATH})*): \S", text)
    if names is None:
        return None
    paths = []
    for name in re.split(", | and ", names[1]):
        is_whole = "/" in name or not paths
        paths.append(name if is_whole else f"{paths[-1].rpartition('/')[0]}/{name}")
    return paths


def missing(path):
    """What a file of laws names that is not there; None stands for a docstring that names nothing."""
    return [name for name in paths_in(said_by(path)) or [None] if name is None or not (ROOT / name).exists()]


def as_lines(advice, lines):
    """One sentence, and a line for each thing to mend: pytest would show the first of them only."""
    return "\n".join([advice, *lines])


def unnamed(files, names):
    return sorted(str(file) for file in files if str(file) not in names)


def imported_tests(path, module):
    """The modules called test_* that the file at ``path``, with this source tree, imports anywhere in it."""
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            package = path.parts[: -node.level] if node.level else ()
            base = ".".join([*package, *filter(None, [node.module])])
            names = [base, *(f"{base}.{alias.name}" for alias in node.names)]
        else:
            continue
        yield from filter(is_module_of_tests, names)


def is_module_of_tests(name):
    file = Path(*name.split("."))
    return file.name.startswith("test_") and (ROOT / file).with_suffix(".py").exists()


def test_no_module_imports_a_module_of_tests():
    wrong = {
        str(path): names
        for path in TEST_FILES
        if (names := [*imported_tests(path, ast.parse((ROOT / path).read_text(encoding="utf-8")))])
    }
    assert wrong == {}, "move what they share into a file that is not called test_*, such as tests/nets.py"


@pytest.mark.parametrize(
    "source",
    [
        "from tests.backends.test_stack import law",
        "from tests.backends import test_stack",
        "def f():\n    import tests.backends.test_stack as laws",
        "from .test_stack import law",
        "from . import test_stack",
    ],
)
def test_an_import_of_a_module_of_tests_is_seen(source):
    assert [*imported_tests(Path("tests/backends/x.py"), ast.parse(source))]
    other = source.replace("test_stack", "stack_laws")
    assert not [*imported_tests(Path("tests/backends/x.py"), ast.parse(other))]


def test_a_file_of_laws_names_what_it_proves():
    wrong = [f"{path}: {name}" for path in MIRRORING for name in missing(path)]
    assert not wrong, as_lines('begin the docstring with "Laws of PATH.py: ", of paths that are there', wrong)


def test_every_file_of_code_is_named_by_a_file_of_laws():
    for mirror, home in MIRRORS.items():
        folders = (mirror, "tests/backends", *TOGETHER)
        named = {
            name
            for path in NAMING
            if any(path.is_relative_to(folder) for folder in folders)
            for name in paths_in(said_by(path)) or ()
        }
        code = [
            path.relative_to(ROOT)
            for path in (ROOT / home).rglob("*.py")
            if path.name not in ("__init__.py", "__main__.py") and "template" not in path.parts
        ]
        wrong = unnamed(code, named)
        advice = f'name these in the docstring "Laws of ..." of the file in {mirror} that proves them'
        assert not wrong, as_lines(advice, wrong)


@pytest.mark.parametrize("mirror", MIRRORS)
def test_a_folder_of_tests_is_named_as_a_folder_of_code(mirror):
    folders = {path.parent for path in LAWS if path.is_relative_to(mirror)}
    code = {folder: ROOT / MIRRORS[mirror] / folder.relative_to(mirror) for folder in folders}
    wrong = sorted(str(f) for f in folders if not code[f].is_dir())
    assert not wrong, as_lines(f"{MIRRORS[mirror]} has no such folder; move these to their code", wrong)


def test_the_checks_of_names_see_what_is_wrong():
    text = "Laws of minigrad/ops/pool.py, pool1d.py and minigrad/nn/: pools are their definitions."
    assert paths_in(text) == ["minigrad/ops/pool.py", "minigrad/ops/pool1d.py", "minigrad/nn/"]
    for other in ("Pools are pools.", "Laws of pools: they are pools.", "Laws of minigrad/ops/pool.py"):
        assert paths_in(other) is None
    assert unnamed([Path("a/b.py"), Path("a/c.py")], {"a/b.py"}) == ["a/c.py"]
