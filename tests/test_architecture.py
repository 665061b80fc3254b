"""What the tree promises: direction of imports, one door per dependency, no hidden state, CuPy's names."""

import ast
import os
import re
import sys
from functools import cache
from pathlib import Path

import pytest

from tests import reading

ROOT = Path(__file__).parent.parent
PACKAGES = ("minigrad", "backends", "lessons")
FILES = sorted(path.relative_to(ROOT) for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
TESTS = sorted(
    path.relative_to(ROOT) for name in ("tests", "benchmarks") for path in (ROOT / name).rglob("*.py")
)
ENGINE = [path for path in FILES if path.parts[0] == "minigrad"]
BACKENDS = [path for path in FILES if path.parts[0] == "backends"]
ROOMS = {"grading", "classroom", "crashes", "storm"}  # of the course, under the laws of the library
LIBRARY = [path for path in FILES if path.parts[0] != "lessons" or ROOMS & {*path.parts}]


@cache
def text(path):
    return (ROOT / path).read_text(encoding="utf-8")


def tree(path):
    """The syntax tree of one file, read for each law: 160 MB would be kept for all files, to save 3 s."""
    return ast.parse(text(path), str(path))


def offenders(check, paths, words=""):
    """The files for which ``check(path)`` finds something, with what it finds.

    Files without any of the ``words``, a regular expression, are not parsed: nothing is there to find.
    """
    paths = [path for path in paths if not words or re.search(words, text(path))]
    return {str(path): wrong for path in paths if (wrong := sorted(map(str, check(path))))}


def packages(module, path=Path()):
    """The top-level packages that a file imports, anywhere in it; relative imports stay in their package."""
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            inside = node.level and node.level < len(path.parts)
            yield path.parts[0] if inside else node.module.split(".")[0]


@cache
def imported(path):
    return frozenset(packages(tree(path), path))


def test_imports_point_from_lessons_to_backends_to_minigrad():
    above = {
        "minigrad": {"backends", "minigrad_course", "tests"},
        "backends": {"minigrad_course", "tests"},
        "lessons": {"tests"},
    }
    assert offenders(lambda path: above[path.parts[0]] & imported(path), FILES) == {}


# Within backends/: each part imports parts that stand before it. The families of strategies do not know one
# another, and what composes them, or derives from one, comes after them.

FAMILIES = ("data_parallel", "model_parallel", "pipeline")
# What the families share.
SHARED = ("consistency", "stale_rates", "placement", "parameter_map", "partition", "laws", "precision_laws")
ORDER = (
    *("words", "pictures", "process", "comm", "grid", *SHARED, *FAMILIES),
    *("sequence_parallel", "expert_parallel", "recording", "first_difference", "hooks", "stack", "registry"),
    *("planner", "checkpoint", "launch", "cli", "entry", "__main__"),
)


def may_import(part):
    """The parts of backends/ that the part of this name may import, besides itself."""
    if part == "__init__":
        return {"launch"}  # at the first use of what it offers
    return {*ORDER[: ORDER.index(part)]} - ({*FAMILIES} if part in FAMILIES else set())


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
    return sorted(set(parts_imported(module, path)) - may_import(part) - {part})


def test_each_part_of_the_backends_imports_earlier_parts_and_no_other_family():
    assert offenders(lambda path: forbidden(tree(path), path), BACKENDS) == {}


@pytest.mark.parametrize(
    ("path", "source", "parts"),
    [
        ("backends/pipeline/new.py", "from ..model_parallel.plan import SPLITS", ["model_parallel"]),
        ("backends/model_parallel/spatial/new.py", "from ...pipeline import engine", ["pipeline"]),
        ("backends/data_parallel/new.py", "def f():\n    import backends.stack", ["stack"]),
        ("backends/comm/new.py", "from .. import data_parallel", ["data_parallel"]),
        ("backends/partition.py", "from backends.pipeline import Pipeline", ["pipeline"]),
        ("backends/comm/new.py", "from ..launch.launch import run", ["launch"]),
        ("backends/checkpoint/new.py", "from ..launch import supervise", ["launch"]),
        ("backends/launch/new.py", "def f():\n    from ..cli.parallel import chosen", ["cli"]),
        ("backends/pipeline/new.py", "from ..comm import trace\nfrom .engine import Engine", []),
        ("backends/stack.py", "from .pipeline import Pipeline", []),
    ],
)
def test_the_import_check_sees_a_planted_import(path, source, parts):
    assert forbidden(ast.parse(source), Path(path)) == parts


# Circles: files that import one another, at the top or within a function, cannot be read one by one. An
# import for annotations alone, under TYPE_CHECKING, does not count.


def circles(package):
    """The sets of two or more files of a folder of which each imports all others, however indirectly."""
    files = sorted(package.rglob("*.py"))
    imports = {file: set(reading.imported(file, package.parent)).intersection(files) for file in files}
    reachable = {}
    for file in files:
        seen_from, new = set(), imports[file]
        while new:
            seen_from |= new
            new = set().union(*(imports[other] for other in new)) - seen_from
        reachable[file] = seen_from
    members = {frozenset(other for other in reachable[file] if file in reachable[other]) for file in files}
    names = [{file.relative_to(package).as_posix() for file in circle} for circle in members]
    return sorted((circle for circle in names if len(circle) > 1), key=sorted)


@pytest.mark.parametrize("package", ["minigrad", "backends"])
def test_no_files_import_one_another(package):
    assert circles(ROOT / package) == []


@pytest.mark.parametrize(
    ("imports_b", "is_circle"),
    [
        ("from .folder.b import B", True),
        ("from .folder import b", True),
        ("import minigrad.folder.b", True),
        ("def f():\n    from .folder import b", True),
        ("if TYPE_CHECKING:\n    from .folder.b import B", False),
        ("from .c import C", False),
    ],
)
def test_the_check_of_circles_sees_a_planted_one(tmp_path, imports_b, is_circle):
    package = tmp_path / "minigrad"
    (package / "folder").mkdir(parents=True)
    (package / "a.py").write_text(imports_b, encoding="utf-8")
    (package / "c.py").write_text("from .a import A", encoding="utf-8")
    (package / "folder" / "b.py").write_text("from ..c import C", encoding="utf-8")
    among = {"a.py", "c.py"} | ({"folder/b.py"} if "folder" in imports_b else set())
    assert circles(package) == ([among] if is_circle or "folder" not in imports_b else [])


@pytest.mark.parametrize(
    ("package", "door"),
    [
        ("mpi4py", "backends/comm/mpi"),
        ("cupy", "minigrad/device.py"),
        ("numba", "minigrad/loops.py"),
        ("hypothesis", "lessons/minigrad_course/grading/"),  # the grader searches with it
    ],
)
def test_one_place_imports(package, door):
    others = [str(path) for path in LIBRARY if package in text(path) and package in imported(path)]
    assert [path for path in others if not path.startswith(door)] == []


# The double of CuPy: a stand-in that only tests may meet.


def names_the_double(source):
    return "strict_cupy" in source


def test_only_tests_know_the_double_of_cupy():
    paths = [*FILES, Path("pyproject.toml"), *(ROOT / "benchmarks").rglob("*.py")]
    assert [path for path in paths if names_the_double(text(path))] == []


def test_the_check_of_the_double_sees_it():
    assert names_the_double('sys.path.append("tests/strict_cupy")')


def test_a_test_run_meets_the_double_only_where_it_is_asked_for():
    double = ROOT / "tests" / "strict_cupy"
    is_used = str(double) in map(os.path.abspath, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    assert is_used or str(double) not in map(os.path.abspath, sys.path)


PICKLERS = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"}
# mpi4py's methods for objects, which it pickles; those for arrays begin with a capital.
OBJECTS = {
    *("send", "bsend", "ssend", "isend", "ibsend", "issend", "recv", "irecv", "sendrecv"),
    *("bcast", "gather", "scatter", "allgather", "alltoall", "reduce", "allreduce", "scan", "exscan"),
    *("mprobe", "improbe"),
}
PICKLING = "|".join([*PICKLERS, "allow_pickle", "mpi", "MPI", "COMM_WORLD"])


def unpickled(module):
    """What a file unpickles."""
    yield from PICKLERS & set(packages(module))
    for node in ast.walk(module):
        if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            if getattr(node.value, "value", None) is not False:
                yield "allow_pickle"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = node.func.value  # ``comm.mpi.send``, where ``comm.send`` is our own
            if node.func.attr in OBJECTS and names_of(owner) in ("mpi", "MPI", "COMM_WORLD"):
                yield ast.unparse(node)


def test_nothing_is_unpickled():
    """Neither from a file nor from a message: whoever could write one would run code here."""
    assert offenders(lambda path: unpickled(tree(path)), LIBRARY, PICKLING) == {}


@pytest.mark.parametrize(
    "source", ["import pickle", "np.load(f, allow_pickle=True)", "self.mpi.send(x)", "MPI.COMM_WORLD.recv()"]
)
def test_the_check_of_pickles_sees(source):
    assert list(unpickled(ast.parse(source))) and re.search(PICKLING, source)


def test_neither_the_library_nor_the_lessons_need_torch_or_the_tests_packages():
    paths = [path for path in FILES if path.name != "testing.py"]
    assert offenders(lambda path: {"torch", "pytest"} & imported(path), paths, "torch|pytest") == {}


# Text files: their encoding does not depend on the machine. ruff sees that of a known Path, this the rest.
OPENING = r"\.\s*(open|read_text|write_text)\b"


def texts_without_encoding(module):
    """The calls of read_text, write_text and open in a file that leave the encoding to the machine."""
    for node in ast.walk(module):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            name, first = node.func.attr, node.args[0] if node.args else None
            mode = first.value if isinstance(first, ast.Constant) else None
            of_text = name == "write_text" or (name == "read_text" and first is None)
            of_text |= name == "open" and isinstance(mode, str) and mode.isalpha() and "b" not in mode
            if of_text and not any(keyword.arg in ("encoding", None) for keyword in node.keywords):
                yield ast.unparse(node)


def test_text_files_have_an_encoding():
    assert offenders(lambda path: texts_without_encoding(tree(path)), [*FILES, *TESTS], OPENING) == {}


def test_the_check_of_encodings_sees_one_that_is_missing():
    for planted in ("file().write_text('a')", "file().open('w')", "file().read_text()"):
        assert list(texts_without_encoding(ast.parse(planted))) and re.search(OPENING, planted)
    assert not list(texts_without_encoding(ast.parse("file().read_text(encoding='ascii')")))


# Names: a participle alone does not say what a variable holds.

BARE_PARTICIPLES = {
    "found",
    "told",
    "given",
    "asked",
    "held",
    "kept",
    "brought",
    "joined",
    "noted",
    "wanted",
    "seen",
}
USES = re.compile(rf"\b({'|'.join(BARE_PARTICIPLES)})\b *([=,:)(\[+|]|in )")
NAMED = [*FILES, *TESTS]


@pytest.mark.parametrize("folder", sorted({path.parts[0] for path in NAMED}))
def test_no_name_is_a_participle_alone(folder):
    wrong = [
        f"{path}:{node.lineno}: {name}"
        for path in NAMED
        if path.parts[0] == folder and USES.search(text(path))  # few need to be parsed
        for node, name in new_names(ast.parse(text(path)))
        if name in BARE_PARTICIPLES
    ]
    assert wrong == []


def new_names(code):
    """The variables, parameters, attributes, functions and classes that a module names."""
    for node in ast.walk(code):
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node, node.id if isinstance(node, ast.Name) else node.attr
        elif isinstance(node, ast.arg):
            yield node, node.arg
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node, node.name


# Prose: who hovers over a name in an editor sees its docstring alone.

POINTS_ELSEWHERE = re.compile(r"\s*(The same|Those|That of|Of|As|Its)\b")
QUOTED = rf"[\"'](\\\n)?{POINTS_ELSEWHERE.pattern}"
DOCUMENTED = [path for path in [*FILES, *TESTS] if path.parts[0] != "tests"]


def pointing_elsewhere(code):
    """The docstrings of a module, and of what is in it, that begin with a reference to something else."""
    texts = [node.value for node in ast.walk(code) if isinstance(node, ast.Expr)]
    texts = [x.value for x in texts if isinstance(x, ast.Constant) and isinstance(x.value, str)]
    return [x.partition("\n")[0] for x in texts if POINTS_ELSEWHERE.match(x)]


def test_a_docstring_can_be_read_alone():
    assert offenders(lambda path: pointing_elsewhere(tree(path)), DOCUMENTED, QUOTED) == {}


def test_the_check_of_docstrings_sees_one_that_points_elsewhere():
    planted = 'def f():\n    """%s of each rank."""\nX = 1\n"""%s of each rank."""'
    assert len(pointing_elsewhere(ast.parse(planted % ("The same", "Those")))) == 2
    assert len(re.findall(QUOTED, planted % ("The same", "\\\nThose"))) == 2
    assert not pointing_elsewhere(ast.parse(planted % ("The mean", "Often those")))


# Rooms: a folder of the course's machinery says what each of its files is for, in the order to read them.


def unnamed(room):
    """The files in a folder with some code that its README does not name."""
    words = text(room / "README.md")
    names = [file.name for file in (ROOT / room).glob("*.py") if file.stat().st_size]
    return [name for name in names if f"`{name}`" not in words]


def test_the_readme_of_each_room_of_the_course_names_its_files():
    rooms = {path.parent for path in FILES if path.parts[1] == "minigrad_course"} - {TEMPLATE}
    assert len(rooms) > 9 and offenders(unnamed, sorted(rooms)) == {}


TEMPLATE = Path("lessons/minigrad_course/grading/template")  # it becomes an assignment, whose README it has


def test_the_check_of_rooms_sees_a_file_without_a_name():
    assert "tasks.py" in unnamed(TEMPLATE)


# The index: a strategy's file says which slide it belongs to, and which lesson draws it.

STRATEGIES = ("data_parallel", "model_parallel", "sequence_parallel", "pipeline", "collectives")
TAUGHT = [p for p in LIBRARY if p.name != "__init__.py" and set(STRATEGIES) & set(p.parts)]
ENGINE_TAUGHT = [Path("minigrad", f"{name}.py") for name in ("tape", "op", "tensor", "optim", "train")]


@cache
def said_by(path):
    return ast.get_docstring(tree(path)) or ""


def test_what_a_lecture_treats_names_its_section_and_lesson():
    paths = [*TAUGHT, *ENGINE_TAUGHT]
    marks = ("Lecture section:", "Lesson:")
    assert offenders(lambda path: [mark for mark in marks if mark not in said_by(path)], paths) == {}


# "Lesson: NN_name." says that the lesson shows the module: it imports it, or names its file or one of its
# names. "Lesson: NN_name, by ``other.py``." says that it shows another module, which imports this one.


def shown_in(path, texts):
    """Whether the module at ``path`` is shown in one of these texts of Python."""
    names = {n.name for n in tree(path).body if isinstance(n, ast.ClassDef | ast.FunctionDef)}
    words = [path.name, *(name for name in names if not name.isalpha() or name != name.lower())]
    if any(re.search(rf"\b{re.escape(word)}\b", text) for word in words for text in texts):
        return True
    nodes = [node for text in texts for node in ast.walk(ast.parse(text))]
    of_package = {f"{path.parent.name}.{name}" for name in names}
    used = {ast.unparse(node) for node in nodes if isinstance(node, ast.Attribute)}
    imports = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    package = ".".join(path.parent.parts)
    imported = {alias.name for node in imports if node.module == package for alias in node.names}
    return bool(of_package & used or names & imported) or any(names_module(ast.parse(t), path) for t in texts)


def texts_of(lesson):
    return [text(file) for file in (ROOT / "lessons" / lesson).glob("*.py")]


def names_module(code, module):
    """Whether ``code`` imports ``module``, by its own name or from its package."""
    stem = module.stem if module.stem != "__init__" else module.parent.name
    imports = [node for node in ast.walk(code) if isinstance(node, ast.ImportFrom)]
    return any(
        stem in {*(node.module or "").split("."), *(alias.name for alias in node.names)} for node in imports
    )


def taught_by(path):
    """The lesson and the other module that a docstring names, or (None, None)."""
    match = re.search(r"Lesson:\s+(\w+)(?:,\s+by\s+``([\w/.]+)``)?", said_by(path))
    return (None, None) if match is None else (match[1], match[2])


def shown_wrongly(path):
    """What is untrue in what a module's docstring says of its lesson."""
    lesson, other = taught_by(path)
    if lesson is None:
        return
    if not (ROOT / "lessons" / lesson / "lesson.py").exists():
        yield f"there is no lesson {lesson}"
    elif other is None:
        if not shown_in(path, texts_of(lesson)):
            yield f"lesson {lesson} shows nothing of it"
    else:
        through = [p for p in LIBRARY if str(p).endswith(f"/{other}") and names_module(tree(p), path)]
        if not any(taught_by(p)[0] == lesson for p in through):
            yield f"no {other} imports it and names lesson {lesson}"


def test_a_lesson_shows_what_the_module_says_it_shows():
    assert offenders(shown_wrongly, LIBRARY) == {}


def test_the_check_of_lessons_sees_a_module_that_is_not_shown():
    flat = Path("backends/data_parallel/flat.py")
    assert not shown_in(flat, ["print('a flat line of segments')"])
    assert shown_in(flat, ["from backends.data_parallel.flat import buckets"])
    assert shown_in(flat, ["# see FlatLayout"])


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
        made = isinstance(value, ast.Call) and names_of(value.func) in ("list", "dict", "set", "deque")
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


def changed_globals(module):
    """The names of a module that its functions change."""
    functions = [
        n for n in ast.walk(module) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
    ]
    yield from (name for n in ast.walk(module) if isinstance(n, ast.Global) for name in n.names)
    if containers := set(module_containers(module)):
        yield from containers & {name for f in functions for name in written_inside(f)}


def test_no_function_changes_a_module_global():
    assert offenders(lambda path: changed_globals(tree(path)), LIBRARY) == {}


def test_the_tape_the_pass_and_how_to_round_are_the_only_context_variables_of_the_engine():
    made = [
        (str(path), node.target.id)
        for path in ENGINE
        if "ContextVar" in text(path)
        for node in ast.walk(tree(path))
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and isinstance(node.value, ast.Call)
        and getattr(node.value.func, "id", "") == "ContextVar"
    ]
    assert sorted(made) == [
        ("minigrad/bfloat16.py", "in_bfloat16"),
        ("minigrad/exact_convolutions.py", "exact"),
        ("minigrad/forward_pass.py", "current_pass"),
        ("minigrad/tape.py", "current_tape"),
    ]


def test_the_state_check_sees_a_changed_global():
    bad = "seen = []\nok = []\ndef f(x):\n    seen.append(x)\n    ok = []\n    ok.append(x)\n"
    assert list(changed_globals(ast.parse(bad))) == ["seen"]
    assert list(changed_globals(ast.parse("n = 0\ndef f():\n    global n\n    n = 1\n"))) == ["n"]


# Composition: a strategy, a module or a tape behaves as its class says; nobody puts behaviour onto another's.


def names_of(node):
    """The name of a base, decorator or target, without what it is an attribute of."""
    return getattr(node, "id", getattr(node, "attr", ""))


@cache
def classes():
    """Each class of the library by its name: its file, its bases, and its methods and flags."""
    return {
        node.name: (path, set(map(names_of, node.bases)), set(members(node)))
        for path in LIBRARY
        for node in ast.walk(tree(path))
        if isinstance(node, ast.ClassDef)
    }


def members(class_definition):
    """Names of the methods and flags that a class gives its instances."""
    for node in class_definition.body:
        if isinstance(node, ast.FunctionDef) and not node.decorator_list:
            yield node.name
        for target in node.targets if isinstance(node, ast.Assign) else ():
            yield from (n.id for n in ast.walk(target) if isinstance(n, ast.Name))


def kinds_of(root):
    """The classes of the library that inherit from ``root``, and itself."""
    kinds = {root}
    while more := {name for name, (_, bases, _) in classes().items() if kinds & bases} - kinds:
        kinds |= more
    return kinds


@cache
def behavior():
    """Names of the methods and flags of backends, modules, tapes and tensors."""
    kinds = set().union(*map(kinds_of, ("Backend", "PlacedState", "Module", "Tape", "Tensor", "Optimizer")))
    return set().union(*(classes()[name][2] for name in kinds))


def key_of(node):
    """The attribute that ``x.name``, ``vars(x)["name"]`` or ``x.__dict__["name"]`` is; "" for one's own."""
    owner, name = None, ""
    if isinstance(node, ast.Attribute):
        owner, name = node.value, node.attr
    elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        if isinstance(node.value, ast.Call) and names_of(node.value.func) == "vars" and node.value.args:
            owner, name = node.value.args[0], node.slice.value
        elif isinstance(node.value, ast.Attribute) and node.value.attr == "__dict__":
            owner, name = node.value.value, node.slice.value
    return "" if names_of(owner) in ("self", "cls") and isinstance(owner, ast.Name) else name


def put_on_others(module):
    """What a file stores or deletes on another object although it is a method or flag of a class."""
    for node in ast.walk(module):
        stored = isinstance(getattr(node, "ctx", None), ast.Store | ast.Del) and key_of(node)
        if stored in behavior():
            yield ast.unparse(node)
        if isinstance(node, ast.Call) and names_of(node.func) in ("setattr", "delattr", "__setattr__"):
            constants = {a.value for a in node.args if isinstance(a, ast.Constant)}
            if constants & behavior() and names_of(node.args[0]) not in ("self", "cls"):
                yield ast.unparse(node)
        if isinstance(node, ast.Compare) and getattr(node.left, "value", None) in behavior():
            places = [c for c in node.comparators if isinstance(c, ast.Call) and names_of(c.func) == "vars"]
            yield from map(ast.unparse, places)


def test_nobody_puts_a_method_or_a_flag_onto_another_object():
    assert offenders(lambda path: put_on_others(tree(path)), LIBRARY) == {}


@pytest.mark.parametrize(
    "patch",
    [
        "outer.passes, outer.forward_backward = inner.forward_backward, 1",
        "members[0].global_square_norms = lambda model, squares: squares",
        "backend.traits = Traits(communicates_in_forward=True)",
        "backend.micro_batches += 1",
        "layer.forward = around",
        "del layer.forward",
        "del self.layers[0].forward",
        "self.backend.update = traced",
        "setattr(backend, 'update', traced)",
        "object.__setattr__(backend, 'update', traced)",
        "vars(backend)['update'] = traced",
        "backend.__dict__['update'] = traced",
        "'forward_backward' in vars(self)",
        "with open(1) as backend.step: pass",
        "for optimizer.update in (): pass",
    ],
)
def test_the_check_of_behaviour_sees_a_patch(patch):
    assert list(put_on_others(ast.parse(patch)))


@pytest.mark.parametrize(
    "own", ["self.update = 1", "p.grad = None", "x.data, y.lr = 1, 2", "vars(p)['w'] = 1"]
)
def test_the_check_of_behaviour_allows_data(own):
    assert not list(put_on_others(ast.parse(own)))


# Strategies: a stack, a recorder, a law works with all of them, so none is named outside its package.


@cache
def owners():
    """The package of each strategy."""
    files = {name: classes()[name][0] for name in kinds_of("Backend")}
    return {name: file.parts[1] for name, file in files.items() if len(file.parts) > 2}


def strategies_named(module, package):
    """The strategies of other packages that a file names, also as text, unless a class of its own is one."""
    bases = {names_of(base) for node in ast.walk(module) for base in getattr(node, "bases", ())}
    for node in ast.walk(module):
        said = {getattr(node, "id", ""), getattr(node, "attr", "")}
        if isinstance(node, ast.alias):
            said |= {node.name.split(".")[-1]}
        yield from (name for name in said if owners().get(name, package) != package and name not in bases)


def test_only_a_strategys_own_package_names_it():
    assert offenders(lambda path: set(strategies_named(tree(path), path.parts[1])), BACKENDS) == {}


def test_the_check_of_names_sees_a_strategy():
    for text in ("isinstance(x, Pipeline)", "from .pipeline import Pipeline", "place.ModelParallel(comm)"):
        assert set(strategies_named(ast.parse(text), "stack.py")) & {"Pipeline", "ModelParallel"}
    assert not set(strategies_named(ast.parse("Pipeline(comm)"), "pipeline"))
    assert not set(strategies_named(ast.parse("class Own(Pipeline): pass"), "stack.py"))


# CuPy: what is written as xp.name must exist there too.


def array_functions():
    """Dotted names used after xp. or array_module(...). in the engine, with one place each."""
    functions = {}
    for path in ENGINE:
        for node in ast.walk(tree(path)):
            names, inner = [], node
            while isinstance(inner, ast.Attribute):
                names.insert(0, inner.attr)
                inner = inner.value
            is_module = isinstance(inner, ast.Call) and names_of(inner.func) in ("array_module", "_cupy")
            if names and (is_module or (isinstance(inner, ast.Name) and inner.id == "xp")):
                functions.setdefault(".".join(names), str(path))
    return functions


def test_the_engine_uses_array_functions():
    assert {"zeros", "add.at", "tensordot"} <= set(array_functions())


def is_in(package, name):
    for part in name.split("."):
        if not hasattr(package, part):
            return False
        package = getattr(package, part)
    return True


def test_every_array_function_exists_in_cupy():
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    missing = {name: path for name, path in array_functions().items() if not is_in(cupy, name)}
    assert missing == {}


def test_the_check_of_array_functions_sees_one_that_is_not_there():
    assert is_in(os, "path.join") and not is_in(os, "path.nowhere")


# Communicators: one contract, with defaults; nothing looks for abilities of a communicator.

PROBES = {"getattr", "hasattr", "isinstance", "vars"}
NAMES_OF_COMMUNICATORS = "(?i)comm|traced|wrapper|background"
COMM_CLASSES = {"Communicator", "Traced", "ThreadComm", "MPIComm", "VirtualComm", "Wrapper", "Background"}


def is_communicator(node):
    """Whether an expression has the name of a communicator: ``comm``, ``self.comm``, ``traced``."""
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    return bool(re.search(r"(^|_)comm(unicator)?$|^traced$", name, re.IGNORECASE))


def probes(module):
    """Calls that look for what a communicator is or has, and attributes found by their name's text."""
    for node in ast.walk(module):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in PROBES:
            first, *rest = node.args or [ast.Constant(None)]
            classes = {n.id for n in ast.walk(rest[0]) if isinstance(n, ast.Name)} if rest else set()
            if is_communicator(first) or (node.func.id == "isinstance" and classes & COMM_CLASSES):
                yield ast.unparse(node)
        if isinstance(node, ast.ClassDef) and any(
            getattr(base, "id", "") in COMM_CLASSES for base in node.bases
        ):
            for method in node.body:
                name = getattr(method, "name", "")
                if name in ("__getattr__", "__getattribute__"):
                    yield f"{node.name}.{name}"


def test_nothing_looks_for_abilities_of_a_communicator():
    paths = [path for path in FILES if "grading" not in path.parts]
    assert offenders(lambda path: probes(tree(path)), paths, NAMES_OF_COMMUNICATORS) == {}


@pytest.mark.parametrize(
    "broken",
    [
        "x = getattr(comm, 'allreduce', None)",
        "if hasattr(self.comm, 'time'): pass",
        "isinstance(world_comm, ThreadComm)",
        "isinstance(thing, (int, Traced))",
        "class Ring(Wrapper):\n    def __getattr__(self, name): pass",
        "'fence' in vars(comm)",
    ],
)
def test_the_check_of_communicators_sees(broken):
    assert list(probes(ast.parse(broken))) and re.search(NAMES_OF_COMMUNICATORS, broken)
    assert all(re.search(NAMES_OF_COMMUNICATORS, name) for name in COMM_CLASSES)
