"""Laws of lessons/minigrad_course/grading/starter_imports.py: what a starter imports of the library is
there for a submission, and nothing else of it.
"""

import numpy as np
import pytest
from minigrad_course.grading import find_assignment
from minigrad_course.grading.assignment import find_assignments
from minigrad_course.grading.counterexample import counterexample
from minigrad_course.grading.grade import MEBIBYTES
from minigrad_course.grading.restricted_comm import RestrictedObject
from minigrad_course.grading.starter_imports import StarterImports
from minigrad_course.grading.submission import Submission, WorkerPool

from backends.pipeline import Backward, Forward, Weight

STARTER = """
import math
from json import dumps
from backends.comm.collectives import ring_allreduce
from backends.pipeline import Backward, Forward, Weight
"""


@pytest.fixture(scope="module")
def imports():
    return StarterImports.read(STARTER)


@pytest.fixture(scope="module")
def load(imports):
    """Loads a program into a worker that has what the starter imports."""
    workers = WorkerPool(MEBIBYTES // 2, 20, imports)
    yield lambda text: Submission(workers, text, "mine.py", set(), {})
    workers.close()


def test_other_packages_are_imported_and_the_librarys_names_are_lent(imports):
    assert imports.modules == ["math", "json"]
    assert {*imports.functions} == {("backends.comm.collectives", "ring_allreduce")}
    assert imports.record_classes() == {"Backward": Backward, "Forward": Forward, "Weight": Weight}


def test_dataclasses_come_back_as_the_librarys_own(load):
    program = load(
        "from backends.pipeline import Backward, Forward, Weight\n"
        "def order(i):\n"
        "    return [Forward(i), Backward(i, chunk=1), Weight((i, 2)), Forward(i) == Forward(3)]\n"
        "def changed(i):\n    Forward(i).micro = 5\n"
    )
    assert program.order(3) == [Forward(3), Backward(3, 1), Weight((3, 2)), True]
    with pytest.raises(AttributeError, match="cannot assign to field"):
        program.changed(1)


def test_functions_are_called_in_the_judge_by_every_rank(load, toys):
    task = find_assignment("a1", toys).only("total").tasks[0]
    program = "from backends.comm.collectives import ring_allreduce\n"
    program += "def total(comm, x):\n    return ring_allreduce(comm, x, {})\n"
    load_numpy = "import numpy as np\n"
    assert counterexample(task, load(load_numpy + program.format("np.add"))) is None
    words = counterexample(task, load(load_numpy + program.format("np.maximum")))
    assert words is not None and " has 10 in element 0" in words


def test_a_lent_function_takes_only_what_was_lent(load):
    program = load(
        "from backends.comm.collectives import ring_allreduce\n"
        "class Comm:\n    rank, size = 0, 10**9\n"
        "def own(x):\n    return ring_allreduce(Comm(), x)\n"
        "def given(comm, x):\n    return ring_allreduce(comm, x)\n"
        "def looked_into():\n    return ring_allreduce.__globals__\n"
        "def unwrapped():\n    return ring_allreduce.__wrapped__\n"
    )
    with pytest.raises(TypeError, match="ring_allreduce takes the communicator that your function was given"):
        program.own(np.ones(2))
    assert (program.given(RestrictedObject("comm", {"rank": 0, "size": 1}, {}), np.ones(2)) == 1).all()
    for name in ("looked_into", "unwrapped"):
        with pytest.raises(AttributeError):
            getattr(program, name)()


@pytest.mark.parametrize(
    "text",
    [
        "from backends.comm.collectives import allgather",
        "import backends.comm.threads",
        "import backends.comm.collectives as c\nc.doubling_allreduce",
        "import minigrad",
        "import minigrad_course",
        "from worker import submission",
        "import hypothesis",
    ],
)
def test_nothing_else_of_the_library_is_there(text, load):
    with pytest.raises((ImportError, AttributeError)):
        load(text + "\n")


@pytest.mark.parametrize(
    "text",
    [
        "from minigrad import Tensor",
        "import backends.comm",
        "from backends.comm import absent",
        "from minigrad import *",
    ],
)
def test_what_cannot_be_lent_is_told_to_the_author(text):
    with pytest.raises(ValueError, match="a submission can have functions and dataclasses") as caught:
        StarterImports.read(text)
    assert "\n" not in str(caught.value)


def test_every_starter_can_be_served():
    for assignment in find_assignments():
        StarterImports.read(assignment.starter.read_text(encoding="utf-8"))
