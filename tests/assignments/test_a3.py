"""Assignment a3: each mistake costs what it should, in plain words."""

from types import SimpleNamespace

import pytest
from minigrad_course.grading import find_assignment

from tests.assignments.mistakes_of_a3 import MISTAKES
from tests.assignments.submissions import JUNK, costs, faults, submission

A3 = find_assignment("a3")
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of submissions that divide by 0
ALL = {task.name for task in A3.tasks}


@pytest.mark.parametrize("junk", JUNK, ids=repr)
def test_what_is_no_array_is_refused_in_words(junk):
    right = submission("solved_a3.py")

    def gradients(comm, parameters, *rest):
        return right.gradients(comm, parameters, *rest)[0], [junk for _ in parameters]

    class Reducer(right.Reducer):
        def finish(self):
            return [junk for _ in super().finish()]

    junk_submission = SimpleNamespace(
        share=lambda *_: junk,
        broadcast_parameters=lambda comm, parameters: comm.rank or comm.send(junk, 1),
        gradients=gradients,
        buckets=lambda *_: junk,
        Reducer=Reducer,
    )
    actual = faults(A3, junk_submission, few=ALL)
    assert set(actual) == ALL
    del actual["broadcast_parameters"]  # a send's own error
    assert all("should" in words or "not an array" in words for words in actual.values()), actual


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_costs_its_task_and_no_other(mistake):
    changes, lost, words = MISTAKES[mistake]
    costs(A3, changes, {lost}, words)
