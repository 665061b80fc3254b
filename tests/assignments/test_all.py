"""What holds for every assignment: answers score all points, the starter and nothing at all score none."""

import ast
from pathlib import Path

import pytest
from minigrad_course.grading.assignment import find_assignments, load_file
from minigrad_course.grading.counterexample import counterexample
from minigrad_course.grading.grade import SubmissionFile, grade

from tests.assignments.submissions import faults, refused, some_cases, submission, submission_text

ASSIGNMENTS = {one.name.partition("_")[0]: one for one in find_assignments()}


@pytest.fixture(params=ASSIGNMENTS)
def assignment(request):
    return ASSIGNMENTS[request.param]


def short(assignment):
    return assignment.name.partition("_")[0]


def test_they_are_in_the_order_of_their_numbers():
    assert list(ASSIGNMENTS) == [f"a{number}" for number in range(1, len(ASSIGNMENTS) + 1)]


def test_each_has_100_points():
    assert ASSIGNMENTS and {one.points for one in ASSIGNMENTS.values()} == {100}


def scores_all_points(assignment, submission):
    words = {t.name: counterexample(t, submission, examples=some_cases(t)) for t in assignment.tasks}
    assert not any(words.values()), words


def test_the_librarys_answers_score_all_points(assignment):
    scores_all_points(assignment, load_file(assignment.answers, f"answers_of_{short(assignment)}"))


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.thorough] if name != "a1" else []) for name in ASSIGNMENTS]
)
def test_the_librarys_answers_score_all_points_in_processes(name):
    """Graded like ``minigrad grade --answers``; the answers of a1 give its engine objects of the grader."""
    assignment = ASSIGNMENTS[name]
    text = assignment.answers.read_text(encoding="utf-8")
    report = grade(assignment, SubmissionFile(assignment.answers, text, ""), answers=True)
    assert report.score == 100, report


def test_a_student_who_follows_the_text_scores_all_points(assignment):
    scores_all_points(assignment, submission(f"solved_{short(assignment)}.py"))


@pytest.mark.thorough
def test_a_student_who_follows_the_text_scores_all_points_in_processes(assignment):
    """Graded in the way of a teacher; so are the listed mistakes (submissions.costs)."""
    file = f"solved_{short(assignment)}.py"
    report = grade(assignment, SubmissionFile(Path(file), submission_text(file), ""))
    assert report.score == 100, report


def test_the_starter_scores_nothing_and_says_what_to_write(assignment):
    """A definition that is there in full is to be mended: it is wrong in other words."""
    names = {task.name for task in assignment.tasks}
    refusals = faults(assignment, load_file(assignment.starter, f"starter_of_{short(assignment)}"), few=names)
    assert set(refusals) == names
    unwritten = {name for name, words in refusals.items() if "NotImplementedError: " in words}
    assert unwritten == names - complete_definitions(assignment.starter.read_text(encoding="utf-8"))


def complete_definitions(source):
    definitions = [x for x in ast.parse(source).body if isinstance(x, ast.FunctionDef | ast.ClassDef)]
    return {x.name for x in definitions if "NotImplementedError" not in ast.unparse(x)}


def test_nothing_and_the_wrong_answers_of_the_tasks_are_refused(assignment):
    names = {task.name for task in assignment.tasks}
    assert set(faults(assignment, object(), few=names)) == names
    assert refused(assignment)


@pytest.mark.parametrize("file", ["README.md", "instructor.md", "submission.py", "answers.py", "tasks.py"])
def test_the_folder_is_whole(assignment, file):
    assert (assignment.folder / file).stat().st_size > 200
