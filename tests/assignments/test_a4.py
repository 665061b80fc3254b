"""Assignment a4: each mistake costs what it should, in plain words."""

from types import SimpleNamespace

import pytest
from minigrad_course.grading import find_assignment

from tests.assignments.mistakes_of_a4 import MISTAKES
from tests.assignments.submissions import JUNK, costs, faults, submission

A4 = find_assignment("a4")
ALL = {task.name for task in A4.tasks}


@pytest.mark.parametrize("junk", JUNK, ids=repr)
def test_what_is_no_array_is_refused_in_words(junk):
    def feedback(error, g, choose):
        choose(error + g)
        return junk, junk

    def exchange(comm, v, indices):
        right.exchange(comm, v, indices)
        return junk

    class Momentum(submission("solved_a4.py").Momentum):
        def step(self, g):
            super().step(g)
            return junk

    right = submission("solved_a4.py")
    junk_submission = SimpleNamespace(
        top_k=lambda *_: junk, pack=lambda *_: junk, feedback=feedback, exchange=exchange, Momentum=Momentum
    )
    actual = faults(A4, junk_submission, few=ALL)
    assert set(actual) == ALL
    assert all("should" in words or "not an array" in words for words in actual.values()), actual


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_costs_its_tasks_and_no_other(mistake):
    costs(A4, *MISTAKES[mistake])
