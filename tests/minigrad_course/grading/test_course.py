"""Laws of lessons/minigrad_course/grading/course.py: a course file sets points and seeds; a key or a value
that means nothing is refused in one line.
"""

import json

import hypothesis.strategies as st
import pytest
from hypothesis import given
from minigrad_course.grading import course as course_module
from minigrad_course.grading import find_assignment
from minigrad_course.grading.course import Course

from tests.bugs.mutant import mutant

from .conftest import DOUBLE, TOTAL

A2 = find_assignment("a2")
NAMES = [task.name for task in A2.tasks]
NUMBERS = st.integers(0, 10**6)
POINTS = st.dictionaries(st.sampled_from(NAMES), NUMBERS)


def course_is_read(module, folder, seed, own, points, name):
    """The seed of the assignment, else of the course, else 0; points of the file, else of the task."""
    lines = [] if seed is None else [f"seed = {seed}"]
    lines += [f"[{name}]"] + ([] if own is None else [f"seed = {own}"])
    lines += [f"[{name}.points]"] + [f"{task} = {value}" for task, value in points.items()]
    (folder / "course.toml").write_text("\n".join(lines), encoding="utf-8")
    course = module.Course.read(folder / "course.toml")
    assert course.seed_of(A2) == next((x for x in (own, seed) if x is not None), 0)
    weighted = course.weighted(A2)
    assert [task.points for task in weighted.tasks] == [points.get(t.name, t.points) for t in A2.tasks]
    assert course.weighted(find_assignment("a3")).points == 100
    assert course.seed_of(find_assignment("a3")) == (seed or 0)


@given(st.none() | NUMBERS, st.none() | NUMBERS, POINTS, st.sampled_from(["a2", "a2_allreduce"]))
def test_a_course_is_read(tmp_path_factory, seed, own, points, name):
    from minigrad_course.grading import course

    course_is_read(course, tmp_path_factory.mktemp("course"), seed, own, points, name)


BUGS = {
    "0 is no seed": ("self.seed if seed is None else seed", "seed or self.seed"),
    "the course's seed alone": ("return self.seed if seed is None else seed", "return self.seed"),
    "points by another name": ("settings[assignment.name] = ", "settings[name] = "),
    "0 points are none": ("points.get(task.name, task.points)", "points.get(task.name) or task.points"),
}


@pytest.mark.parametrize("bug", BUGS)
def test_the_law_catches(bug, tmp_path):
    with pytest.raises(AssertionError):
        module = mutant("minigrad_course.grading.course", BUGS[bug])
        course_is_read(module, tmp_path, 3, 0, {NAMES[0]: 0}, "a2")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("seed = -1", "course.toml: seed is -1; write a whole number, 0 or more"),
        ("seed = true", "seed is True; write a whole number"),
        ("sed = 3", "there is no setting 'sed'; write seed, or a table such as [a2]"),
        ("seed 3", "course.toml is not TOML: "),
        ("[a99]", "course.toml, [a99]: no assignment 'a99'; there are a1_backpropagation, "),
        ("[a2]\n[a2_allreduce]", "course.toml has two tables for a2_allreduce; join them"),
        ("[a2]\npoint = 3", "course.toml, [a2]: there is no setting 'point'; choose from seed, points"),
        ("[a2]\npoints = 3", "course.toml, [a2]: points is 3; write a line for each task below [a2.points]"),
        ("[a2.points]\nring = 3", "[a2]: there is no task 'ring'; choose from gather_broadcast_allreduce, "),
        ("[a2.points]\nring_allgather = 1.5", "[a2]: ring_allgather is 1.5; write a whole number"),
    ],
)
def test_a_mistake_is_answered_in_one_line(text, words, minigrad, tmp_path):
    (tmp_path / "course.toml").write_text(text, encoding="utf-8")
    for command in (["grade", "a2"], ["autograder", "a2", "--gradescope", "a2.zip"]):
        status, _, err = minigrad(*command, "--course", "course.toml")
        assert status == 1 and words in err and err.count("\n") == 1, err
    assert not (tmp_path / "a2.zip").exists()


def test_the_command_takes_points_seed_and_one_task(minigrad, toys, tmp_path):
    (tmp_path / "mine.py").write_text(TOTAL + DOUBLE, encoding="utf-8")
    (tmp_path / "course.toml").write_text("seed = 5\n[a1.points]\ndouble = 7\n", encoding="utf-8")
    line = ["grade", "a1", "mine.py", "--folder", str(toys), "--course", "course.toml"]
    status, out, _ = minigrad(*line, "--task", "double", "--json", "r.json")
    assert status == 0 and "7 of 7 points" in out and "total" not in out
    assert json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))["seed"] == 5
    for mistake, words in (
        (["--seed", "3"], "both --seed and course.toml set the seed"),
        (["--task", "triple"], "unknown task 'triple'; choose one of total, double"),
    ):
        status, _, err = minigrad(*line, *mistake)
        assert status == 1 and words in err and err.count("\n") == 1
    assert Course() == Course(0, {})


def one_file_is_of_the_course_and_of_own_assignments(module, toys, tmp_path):
    """[a1] is the own one, and tables of the course's other assignments stay where they are."""
    text = "seed = 1\n[a1]\nseed = 2\n[a2.points]\nring_allgather = 7\n[a1.points]\ndouble = 5\n"
    (tmp_path / "both.toml").write_text(text, encoding="utf-8")
    course = module.Course.read(tmp_path / "both.toml", toys)
    toy = find_assignment("a1", toys)
    assert (course.seed_of(toy), course.weighted(toy).points, course.seed_of(A2)) == (2, 65, 1)
    assert course.weighted(A2).points == A2.points - 15 + 7


def test_one_file_is_of_the_course_and_of_own_assignments(toys, tmp_path):
    one_file_is_of_the_course_and_of_own_assignments(course_module, toys, tmp_path)
    for change in (
        ("(name, folder, FOLDER)", "(name, folder)"),
        ("(name, folder, FOLDER)", "(name, FOLDER)"),
    ):
        with pytest.raises((AssertionError, ValueError)):
            module = mutant("minigrad_course.grading.course", change)
            one_file_is_of_the_course_and_of_own_assignments(module, toys, tmp_path)
