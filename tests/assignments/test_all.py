"""What holds for every assignment: answers score all points, the starter and nothing at all score none."""

import pytest

from backends.grading.assignment import find_assignments, load_file
from tests.assignments.submissions import faults, refused, submission

ASSIGNMENTS = {one.name.partition("_")[0]: one for one in find_assignments()}


@pytest.fixture(params=ASSIGNMENTS)
def assignment(request):
    return ASSIGNMENTS[request.param]


def short(assignment):
    return assignment.name.partition("_")[0]


def test_there_are_eight_of_100_points():
    assert [*ASSIGNMENTS] == [f"a{n}" for n in range(1, 9)]
    assert {one.points for one in ASSIGNMENTS.values()} == {100}


def test_the_librarys_answers_score_all_points(assignment):
    assert faults(assignment, load_file(assignment.answers, f"answers_of_{short(assignment)}")) == {}


def test_a_student_who_follows_the_text_scores_all_points(assignment):
    assert faults(assignment, submission(f"solved_{short(assignment)}.py")) == {}


def test_the_starter_scores_nothing_and_says_what_to_write(assignment):
    """But for what is there to be mended, in the bug hunt."""
    names = {task.name for task in assignment.tasks}
    found = faults(assignment, load_file(assignment.starter, f"starter_of_{short(assignment)}"), few=names)
    assert set(found) == names
    unwritten = [words for words in found.values() if "NotImplementedError: " in words]
    assert len(unwritten) == (6 if short(assignment) == "a8" else len(names))


def test_nothing_and_the_wrong_answers_of_the_tasks_are_refused(assignment):
    names = {task.name for task in assignment.tasks}
    assert set(faults(assignment, object(), few=names)) == names
    assert refused(assignment)


@pytest.mark.parametrize("file", ["README.md", "instructor.md", "submission.py", "answers.py", "tasks.py"])
def test_the_folder_is_whole(assignment, file):
    assert (assignment.folder / file).stat().st_size > 200
