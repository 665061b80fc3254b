"""What the tree promises: direction of imports, one door per dependency, no hidden state, CuPy's names."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("minigrad", "backends", "lessons")
FILES = sorted(path.relative_to(ROOT) for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
ENGINE = [path for path in FILES if path.parts[0] == "minigrad"]
LIBRARY = [path for path in FILES if path.parts[0] != "lessons"]


@cache
def tree(path):
    return ast.parse((ROOT / path).read_text(), str(path))


def imported(path):
    """The top-level packages that a file imports, anywhere in it; relative imports stay in their package."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            inside = node.level and node.level < len(path.parts)
            yield path.parts[0] if inside else node.module.split(".")[0]


@pytest.mark.parametrize("path", FILES, ids=str)
def test_imports_point_from_lessons_to_backends_to_minigrad(path):
    above = {
        "minigrad": {"backends", "lessons", "tests"},
        "backends": {"lessons", "tests"},
        "lessons": {"tests"},
    }
    assert not above[path.parts[0]] & set(imported(path))


# Within backends/: the families of strategies do not know one another, and what composes them stands above.

FAMILIES = ("data_parallel", "model_parallel", "pipeline")
SHARED = ("consistency", "partition", "placement", "stale_rates", "laws")  # what the families share


def may_import(part):
    """The parts of backends/ that the part of this name may import, besides itself; None: all of them."""
    if part == "comm":
        return {"launcher", "rank", "launch"}  # how the processes were started, and what became of them
    if part in SHARED:
        return {"comm", *SHARED}
    return {"comm", *SHARED} if part in FAMILIES else None


def parts_imported(module, path):
    """The parts of backends/ that the file at ``path``, with this source tree, imports anywhere in it."""
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            package = list(path.parts[: -node.level]) if node.level else []
            base = [*package, *(node.module.split(".") if node.module else [])]
            names = [".".join([*base, alias.name]) for alias in node.names]
        else:
            continue
        yield from (name.split(".")[1] for name in names if name.startswith("backends."))


def forbidden(module, path):
    part = path.parts[1].removesuffix(".py")
    allowed = may_import(part)
    if path.name == "compressed.py" and allowed is not None:
        allowed = allowed | {"strategies"}  # reads a compressor's options as those of a strategy
    return [] if allowed is None else sorted(set(parts_imported(module, path)) - allowed - {part})


@pytest.mark.parametrize("path", [p for p in FILES if p.parts[0] == "backends"], ids=str)
def test_families_of_strategies_stand_on_comm_and_do_not_import_one_another(path):
    assert forbidden(tree(path), path) == []


@pytest.mark.parametrize(
    ("path", "source", "parts"),
    [
        ("backends/pipeline/new.py", "from ..model_parallel.plan import SPLITS", ["model_parallel"]),
        ("backends/model_parallel/spatial/new.py", "from ...pipeline import engine", ["pipeline"]),
        ("backends/data_parallel/new.py", "def f():\n    import backends.stack", ["stack"]),
        ("backends/comm/new.py", "from .. import data_parallel", ["data_parallel"]),
        ("backends/partition.py", "from backends.pipeline import Pipeline", ["pipeline"]),
        ("backends/pipeline/new.py", "from ..comm import adjoint\nfrom .engine import Engine", []),
        ("backends/stack.py", "from .pipeline import Pipeline", []),
    ],
)
def test_the_import_check_sees_a_planted_import(path, source, parts):
    assert forbidden(ast.parse(source), Path(path)) == parts


@pytest.mark.parametrize(
    ("package", "door"),
    [
        ("mpi4py", "backends/comm/mpi.py"),
        ("cupy", "minigrad/device.py"),
        ("hypothesis", "minigrad/testing.py"),
    ],
)
def test_one_file_imports(package, door):
    others = [str(path) for path in LIBRARY if package in imported(path) and path != Path(door)]
    if package == "hypothesis":  # the grader searches with it
        others = [path for path in others if not path.startswith("backends/grading/")]
    assert others in ([], ["backends/laws.py"] if package == "hypothesis" else [])


PICKLERS = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"}
# mpi4py's methods for objects, which it pickles; those for arrays begin with a capital.
OBJECTS = {
    *("send", "bsend", "ssend", "isend", "ibsend", "issend", "recv", "irecv", "sendrecv"),
    *("bcast", "gather", "scatter", "allgather", "alltoall", "reduce", "allreduce", "scan", "exscan"),
    *("mprobe", "improbe"),
}


@pytest.mark.parametrize("path", LIBRARY, ids=str)
def test_nothing_is_unpickled(path):
    """Neither from a file nor from a message: whoever could write one would run code here."""
    assert not PICKLERS & set(imported(path))
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            assert getattr(node.value, "value", None) is False
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in OBJECTS:
            owner = node.func.value  # ``comm.mpi.send``, where ``comm.send`` is our own
            assert not (isinstance(owner, ast.Attribute) and owner.attr == "mpi"), ast.unparse(node)
            assert not (isinstance(owner, ast.Name) and owner.id in ("MPI", "COMM_WORLD")), ast.unparse(node)


@pytest.mark.parametrize("path", [p for p in FILES if p.name != "testing.py"], ids=str)
def test_neither_the_library_nor_the_lessons_need_torch_or_the_tests_packages(path):
    assert not {"torch", "pytest"} & set(imported(path))


# The index: a strategy's file says which slide it belongs to, and which lesson draws it.

STRATEGIES = ("data_parallel", "model_parallel", "pipeline", "collectives")
TAUGHT = [p for p in LIBRARY if p.name != "__init__.py" and set(STRATEGIES) & set(p.parts)]
ENGINE_TAUGHT = [ROOT / "minigrad" / f"{name}.py" for name in ("tape", "op", "tensor", "optim", "train")]


@pytest.mark.parametrize("path", [*TAUGHT, *(p.relative_to(ROOT) for p in ENGINE_TAUGHT)], ids=str)
def test_what_a_lecture_treats_names_its_section_and_lesson(path):
    assert {"Lecture section:", "Lesson:"} <= set(re.findall(r"Lecture section:|Lesson:", said_by(path)))


@pytest.mark.parametrize("path", LIBRARY, ids=str)
def test_lessons_that_a_module_names_exist(path):
    for lesson in re.findall(r"Lesson: (\w+)", said_by(path)):
        assert (ROOT / "lessons" / lesson / "lesson.py").exists()


def said_by(path):
    return ast.get_docstring(tree(path)) or ""


# State: a module's names are bound when it is imported and its containers are filled then, never later.

CONTAINERS = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)
MUTATING = {
    *("append", "appendleft", "extend", "insert", "add", "update", "setdefault", "sort", "reverse"),
    *("pop", "popitem", "remove", "discard", "clear"),
}


def module_containers(module):
    """Names bound to a list, dict or set at the top of the file."""
    for node in module.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        value = getattr(node, "value", None)
        made = isinstance(value, ast.Call) and getattr(value.func, "id", "") in (
            "list",
            "dict",
            "set",
            "deque",
        )
        if isinstance(value, CONTAINERS) or made:
            yield from (t.id for t in targets if isinstance(t, ast.Name))


def written_inside(function):
    """Names that a function stores into, or calls a mutating method of, without having bound them."""
    nodes = list(ast.walk(function))
    arguments = {
        a.arg for n in nodes if isinstance(n, ast.arguments) for a in (*n.args, *n.kwonlyargs, *n.posonlyargs)
    }
    bound = arguments | {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    for node in nodes:
        place = None
        if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
            place = node.value
        elif (
            isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in MUTATING
        ):
            place = node.func.value
        if isinstance(place, ast.Name) and place.id not in bound:
            yield place.id


@pytest.mark.parametrize("path", LIBRARY, ids=str)
def test_no_function_changes_a_module_global(path):
    module = tree(path)
    functions = [
        n for n in ast.walk(module) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
    ]
    assert not [n for n in ast.walk(module) if isinstance(n, ast.Global)], "a global statement"
    containers = set(module_containers(module))
    assert not containers & {name for f in functions for name in written_inside(f)}


def test_the_current_tape_is_the_only_context_variable_of_the_engine():
    made = [
        (str(path), node.target.id)
        for path in ENGINE
        for node in ast.walk(tree(path))
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and isinstance(node.value, ast.Call)
        and getattr(node.value.func, "id", "") == "ContextVar"
    ]
    assert made == [("minigrad/tape.py", "current_tape")]


def test_the_state_check_sees_a_changed_global():
    bad = ast.parse("seen = []\nok = []\ndef f(x):\n    seen.append(x)\n    ok = []\n    ok.append(x)\n")
    assert set(module_containers(bad)) & set(written_inside(bad.body[2])) == {"seen"}


# CuPy: what is written as xp.name must exist there too.


def array_functions():
    """Dotted names used after xp. or array_module(...). in the engine, with one place each."""
    found = {}
    for path in ENGINE:
        for node in ast.walk(tree(path)):
            names, inner = [], node
            while isinstance(inner, ast.Attribute):
                names.insert(0, inner.attr)
                inner = inner.value
            is_module = isinstance(inner, ast.Call) and getattr(inner.func, "id", "") in (
                "array_module",
                "_cupy",
            )
            if names and (is_module or (isinstance(inner, ast.Name) and inner.id == "xp")):
                found.setdefault(".".join(names), str(path))
    return found


def test_the_engine_uses_array_functions():
    assert {"zeros", "add.at", "tensordot"} <= set(array_functions())


@pytest.mark.parametrize("name", sorted(array_functions()))
def test_every_array_function_exists_in_cupy(name):
    found = pytest.importorskip("cupy", reason="CuPy is not installed")
    for part in name.split("."):
        assert hasattr(found, part), f"{array_functions()[name]} uses xp.{name}"
        found = getattr(found, part)
