"""Assignment a10: each mistake costs what it should, in plain words."""

from types import SimpleNamespace

import numpy as np
import pytest
from minigrad_course.grading import find_assignment
from minigrad_course.grading.counterexample import counterexample

from tests.assignments.mistakes_of_a10 import MISTAKES
from tests.assignments.submissions import JUNK, costs, faults, submission

A10 = find_assignment("a10")
ALL = {task.name for task in A10.tasks}


@pytest.mark.parametrize("junk", [*JUNK, ("x", "y"), (None,) * 3, [None]], ids=repr)
def test_junk_is_refused_in_words(junk):
    junk_submission = SimpleNamespace(**dict.fromkeys(ALL, lambda *_: junk))
    refusals = faults(A10, junk_submission, few=ALL)
    assert set(refusals) == ALL
    words = ("returned", "is a", "is None", "it should be")
    assert all(any(word in said for word in words) for said in refusals.values()), refusals
    assert not any("Error" in said for said in refusals.values()), refusals


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_costs_its_tasks_and_no_other(mistake):
    costs(A10, *MISTAKES[mistake])


def test_columns_may_be_integers_of_any_size():
    for dtype in ("np.int32", "np.uint16", "int"):
        right = submission("solved_a10.py", ("np.arange(tokens)", f"np.arange(tokens, dtype={dtype})"))
        assert faults(A10, right, few=ALL - {"zigzag"}) == {}, dtype


@pytest.mark.parametrize("seed", range(4))
def test_merge_without_care_for_queries_that_see_nothing_earns_half(seed):
    task = next(task for task in A10.tasks if task.name == "merge")
    careless = submission("solved_a10.py", *MISTAKES["-inf from -inf"][0])
    with np.errstate(invalid="ignore"):
        assert counterexample(task.under(task.parts[0]), careless, seed, task.examples, shrink=False) is None


@pytest.mark.filterwarnings("error")
def test_columns_too_large_to_add_are_refused_without_a_warning():
    def zigzag(tokens, ranks):
        return [np.full(tokens, 2**62) for _ in range(ranks)]

    words = faults(A10, SimpleNamespace(zigzag=zigzag), few=ALL)["zigzag"]
    assert "pairs, not" in words or "it should have" in words
