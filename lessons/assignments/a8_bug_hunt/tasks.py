"""What assignment a8 is held to: six parts keep their laws, and six properties tell right from wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hypothesis.strategies as st
import numpy as np
from minigrad_course.grading import Task, Wrong
from minigrad_course.grading.assignment import load_file
from minigrad_course.grading.restricted_comm import POINT_TO_POINT, RestrictedComm, RestrictedObject

from backends.comm import Communicator
from backends.comm.collectives import allgather

HERE = Path(__file__).parent
laws = load_file(HERE / "laws.py", "laws_of_a8")
functions = load_file(HERE / "functions.py", "functions_of_a8")
classes = load_file(HERE / "classes.py", "classes_of_a8")
RIGHT = functions.RIGHT | classes.RIGHT
WRONG = functions.WRONG | classes.WRONG

TRIED = 4  # of the wrong implementations, on each case
CALLS = (*POINT_TO_POINT, "recv_any", "allreduce")
METHODS = ("take", "give_back", "compress", "forward", "backward")
SEEDS, FEW = st.integers(0, 2**16), st.sampled_from([3, 1, 2, 4])


def tuples(each: Any, most: int = 5) -> Any:
    return st.lists(each, min_size=1, max_size=most).map(tuple)


CASES: dict[int, Any] = {
    1: st.builds(laws.Samples, tuples(st.integers(0, 7)) | tuples(st.just(0)), FEW, SEEDS),
    2: st.builds(laws.Traffic, tuples(st.integers(0, 3), most=7), SEEDS),
    3: st.builds(laws.Tied, tuples(st.booleans()).filter(any), FEW, SEEDS),
    4: st.integers(1, 6).flatmap(
        lambda size: st.builds(laws.Stream, st.just(size), st.integers(1, size), st.integers(1, 5), SEEDS)
    ),
    5: st.integers(1, 6).flatmap(
        lambda size: st.builds(laws.Sparse, st.integers(1, 5), st.just(size), st.integers(0, size), SEEDS)
    ),
    6: st.builds(laws.Rows, tuples(st.integers(1, 4)), st.integers(1, 2), SEEDS),
}


def check_part(name: str) -> Callable[[Any, Any, Communicator], None]:
    """The check of a mended part: its law."""
    return lambda submission, case, comm: case.law(getattr(submission, name), RestrictedComm(comm, CALLS))


def check_property(number: int) -> Callable[[Any, Any, Communicator], None]:
    """The check of a property: of each implementation it says on this case what the law says."""

    def check(submission: Any, case: Any, comm: Communicator) -> None:
        name = f"property_{number}"
        tried = getattr(submission, name)
        turned = case.seed % len(WRONG[number])
        wrong = (WRONG[number] * 2)[turned : turned + TRIED]
        for implementation in (*RIGHT[number], *wrong):
            true = refusal(comm, lambda group, it=implementation: case.law(it, group))
            said = refusal(comm, lambda group, it=implementation: call(tried, it, group, case))
            if said and not true:
                raise Wrong(f"{name} refuses what is right here: {said}")
            if true and not said:
                raise Wrong(f"{name} lets a wrong implementation pass: {true}")

    return check


def call(tried: Any, implementation: Any, comm: Communicator, case: Any) -> None:
    """The property as the text of the assignment has it; what plays on one rank needs no communicator."""
    alone = isinstance(case, laws.Traffic | laws.Stream)
    group = () if alone else (RestrictedComm(comm, CALLS),)
    tried(offered(implementation), *group, *case.data(comm.rank))


def offered(implementation: Any) -> Callable[..., Any]:
    """The implementation as a property gets it: of an instance of a class what its docstrings name."""
    if not isinstance(implementation, type):
        return implementation

    def make(*arguments: Any) -> RestrictedObject:
        made: Any = implementation(*arguments)
        calls = {name: getattr(made, name) for name in METHODS if hasattr(made, name)}
        return RestrictedObject(implementation.__name__, {}, calls, {"residual": lambda: made.residual})

    return make


def refusal(comm: Communicator, attempt: Callable[[Communicator], None]) -> str:
    """What the first rank that raised an AssertionError said, on every rank; "" where none did.

    Each attempt has a group of its own, so that what one left unread reaches no other.
    """
    group, said = comm.split(0), ""
    try:
        attempt(group)
    except AssertionError as error:
        said = " ".join(str(error).split())[:200] or "AssertionError"
    texts = allgather(comm, np.array(list(said.encode()), np.uint8))
    return next((bytes(text).decode(errors="replace") for text in texts if text.size), "")


def sees_nothing(*_: Any) -> None:
    """A wrong property: it is content with everything."""


PARTS = {
    1: ("mean_gradient", "the mean over uneven shards", 6, 10),
    2: ("Inbox", "memory that a tape still needs", 6, 10),
    3: ("update_tied", "a weight used in two places", 6, 10),
    4: ("ErrorFeedback", "what was not sent", 6, 10),
    5: ("sparse_sum", "whose indices, whose values", 7, 11),
    6: ("SplitFilter", "the halo on the way back", 7, 11),
}


def tasks_of(number: int) -> tuple[Task, Task]:
    """Mend the part, and write the property that catches its bug."""
    name, title, mended, caught = PARTS[number]
    broken = SimpleNamespace(**{name: WRONG[number][0]})
    blind = SimpleNamespace(**{f"property_{number}": sees_nothing})
    cases, check = CASES[number], check_property(number)
    return (
        Task(name, mended, title, cases, check_part(name), broken, examples=60),
        Task(f"property_{number}", caught, f"the law of {name}", cases, check, blind, examples=25),
    )


TASKS = tuple(task for number in PARTS for task in tasks_of(number))
