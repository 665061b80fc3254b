"""Assignment a2: each mistake costs what it should, in plain words."""

from types import SimpleNamespace

import pytest
from minigrad_course.grading import find_assignment

from tests.assignments.mistakes_of_a2 import MISTAKES
from tests.assignments.submissions import JUNK, costs, faults

A2 = find_assignment("a2")
ALL = {task.name for task in A2.tasks}


@pytest.mark.parametrize("junk", JUNK, ids=repr)
def test_what_is_no_array_is_refused_in_words(junk):
    junk_submission = SimpleNamespace(**dict.fromkeys(ALL, lambda *_: junk))
    refusals = faults(A2, junk_submission, few=ALL)
    assert set(refusals) == ALL and all("returned" in words for words in refusals.values()), refusals


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_costs_its_tasks_and_no_other(mistake):
    costs(A2, *MISTAKES[mistake])
