"""Assignment a10: each mistake costs what it should, in plain words."""

from types import SimpleNamespace

import pytest
from minigrad_course.grading import find_assignment

from tests.assignments.mistakes_of_a10 import MISTAKES
from tests.assignments.submissions import JUNK, costs, faults

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
