"""Laws of lessons/minigrad_course/grading/submission.py,
lessons/minigrad_course/grading/worker/worker.py and sandbox.py: whatever a program does in a worker's
process, it gains no point, and finds no answer there.
"""

from contextlib import suppress
from pathlib import Path

import pytest
from minigrad_course.grading import find_assignment, submission
from minigrad_course.grading.counterexample import counterexample
from minigrad_course.grading.grade import MEBIBYTES
from minigrad_course.grading.sandbox import protections
from minigrad_course.grading.starter_imports import StarterImports
from minigrad_course.grading.submission import Submission, WorkerPool

from .hostile_programs import AROUND, BESIDE, FILES, PROTOCOL

SANDBOXED = any(name.startswith("seccomp") for name in protections())
pytestmark = pytest.mark.skipif(not SANDBOXED, reason="needs seccomp")
PROGRAMS = {**FILES, **AROUND, **PROTOCOL, **BESIDE}
CASES = 8  # of a task
# Python's own hook is absent: what keeps a program from files is the system, as if the program had got past
# the hook by corrupting memory
UNHOOKED = submission.START.replace(
    "main(", "from worker import sandbox\nsandbox.add_audit_hook = lambda reading: None\nmain("
)


def pool(**settings):
    return WorkerPool(MEBIBYTES // 2, 20, StarterImports(), **settings)


@pytest.fixture(scope="module")
def unhooked():
    """Workers without the audit hook."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(submission, "START", UNHOOKED)
        workers = pool()
    yield workers
    workers.close()


@pytest.fixture
def gains(toys, capfd):
    """What a program gains from these workers: the toy's tasks that it passes, and what it says it has."""

    def gains(program, workers):
        passed = []
        for task in find_assignment("a1", toys).tasks:
            with suppress(Exception):  # it cannot be loaded
                loaded = Submission(workers, program, "mine.py", set(), {})
                if counterexample(task, loaded, 0, CASES, shrink=False) is None:
                    passed.append(task.name)
        return passed + [line for line in capfd.readouterr().out.splitlines() if "STOLEN" in line]

    return gains


QUICK = {
    *("a path to import from", "every way of Python's to open a file", "system calls that open files"),
    *("what the worker can load", "attributes with an underscore", "memory that NumPy writes by an address"),
    *("arrays that reach out of their memory", "an object with the names that NumPy asks for"),
    *("an error that ends loops", "flags of a descriptor"),
}


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.thorough) for name in PROGRAMS]
)
def test_nothing_is_gained_by(name, gains, unhooked):
    assert gains(PROGRAMS[name], unhooked) == []


def test_there_are_many_kinds():
    assert len(PROGRAMS) >= 40 and {*PROGRAMS} >= QUICK


LOOKS_AT_ITSELF = """
import gc, resource, sys

def limits():
    names = ("RLIMIT_DATA", "RLIMIT_CPU", "RLIMIT_FSIZE", "RLIMIT_CORE")
    return [resource.getrlimit(getattr(resource, name))[1] for name in names]

def files():
    functions = [x for x in gc.get_objects() if type(x).__name__ == "function"]
    return sorted({x.__code__.co_filename for x in functions}), sorted(sys.path)

def modules():
    return sorted(sys.modules)
"""


def holds_nothing_of_the_project(workers):
    """Limits hold; all code in a worker's memory is Python's, NumPy's, the submission's, or of worker/."""
    program = Submission(workers, LOOKS_AT_ITSELF, "mine.py", set(), {})
    assert program.limits() == [MEBIBYTES // 2 * 2**20, 25, 0, 0]
    names, paths = program.files()
    folder = Path(submission.__file__).parent
    outside = [Path(name) for name in names if Path(name).is_relative_to(folder.parents[1])]
    inside = {file.parent for file in outside if ".venv" not in file.parts}
    assert inside <= {folder / "worker"} and paths == []
    project = {"minigrad", "backends", "minigrad_course", "hypothesis", "mpi4py"}
    assert not project & {name.partition(".")[0] for name in program.modules()}


def test_a_worker_holds_nothing_of_the_project(workers):
    holds_nothing_of_the_project(workers)


def test_the_law_sees_a_worker_that_may_read(capfd):
    workers = pool(trusted=True)
    with pytest.raises(AssertionError):
        holds_nothing_of_the_project(workers)
    workers.close()


# The programs are no straw men: in an interpreter that can read and import the library they gain points

OPEN = submission.START.replace(
    "main(", "from worker import sandbox\nsandbox.enter = lambda *parts, **settings: []\nmain("
)


@pytest.fixture(scope="module")
def unprotected():
    """Workers without the sandbox, which can import the library."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(submission, "START", OPEN)
        workers = pool(trusted=True)
    yield workers
    workers.close()


@pytest.mark.parametrize(
    "name",
    [
        "a path to import from",
        *(
            pytest.param(name, marks=pytest.mark.thorough)
            for name in (
                *("a loader of its own", "a finder of its own", "a package put together by hand"),
                *("every way of Python's to open a file", "every way of NumPy's to open a file"),
                *("modules that read sources", "mapped memory", "the generator of the cases"),
                *("what the worker can load", "a pickle of the answer"),
            )
        ),
    ],
)
def test_the_law_sees_what_is_gained_without_protection_by(name, gains, unprotected):
    with pytest.raises(AssertionError):
        assert gains(PROGRAMS[name], unprotected) == []
