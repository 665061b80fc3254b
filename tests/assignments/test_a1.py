"""Assignment a1: each mistake costs what it should, in plain words."""

from types import SimpleNamespace

import pytest
from minigrad_course.grading import find_assignment

from tests.assignments.mistakes_of_a1 import MISTAKES
from tests.assignments.submissions import JUNK, costs, faults, submission

A1 = find_assignment("a1")
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of submissions that overflow
ALL = {task.name for task in A1.tasks}


@pytest.mark.parametrize("junk", JUNK, ids=repr)
def test_what_is_no_array_is_refused_in_words(junk):
    right = submission("solved_a1.py")

    class Tape(right.Tape):
        def backward(self, output, seed):
            return [junk for _ in super().backward(output, seed)]

    def junk_back(op, n):
        return lambda *inputs, **settings: (op(*inputs, **settings)[0], [lambda g: junk for _ in inputs[:n]])

    for n in (0, 1, 3):  # too few pullbacks, one, three
        ops = {name: junk_back(getattr(right, name), n) for name in ALL - {"Tape"}}
        actual = faults(A1, SimpleNamespace(Tape=Tape, **ops), few=ALL)
        assert set(actual) == ALL
        assert all("should" in words or "not an array" in words for words in actual.values()), actual


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_costs_its_task_and_no_other(mistake):
    right, wrong, lost, words = MISTAKES[mistake]
    costs(A1, [(right, wrong)], {lost}, words)
