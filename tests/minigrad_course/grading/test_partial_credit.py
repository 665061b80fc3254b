"""Laws of lessons/minigrad_course/grading/grade.py and judge.py: a failed task earns the best of its
parts, and a part's supplied functions cost nothing.
"""

import time
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import hypothesis.strategies as st
import pytest
from hypothesis import given
from minigrad_course.grading import Part, Task, grade
from minigrad_course.grading.folder import Entry, failures
from minigrad_course.grading.grade import TaskResult
from minigrad_course.grading.judge import Request
from minigrad_course.grading.reports import as_gradescope, as_json, as_junit

from tests.bugs.mutant import mutant

from .conftest import DOUBLE, TASKS, TOTAL

SHARES = st.lists(st.sampled_from([0.2, 0.25, 0.4, 0.5, 1.0]), max_size=4, unique=True)
REQUEST = Request("", "", "t", "", "", "", 0, "threads", 60, 448, False)


def best_part_counts(module, folder, shares, has_parts, supplied, points, has_answers, refuted=()):
    """The score is that of the largest share among the parts that are right and can be tried."""
    still = tuple(number for number in range(len(shares)) if number not in refuted)
    names = [("f",) if number in supplied else () for number in range(len(shares))]
    parts = tuple(Part(str(s), s, supplied=name) for s, name in zip(shares, names, strict=True))
    task = Task("t", points, "", st.none(), lambda *_: None, None, parts=parts)
    (folder / "answers.py").unlink(missing_ok=True)
    if has_answers:
        (folder / "answers.py").write_text("", encoding="utf-8")

    def run_judge(task, request):
        assert request.part is None or request.part in still, "a part that the failing case refutes"
        return TaskResult(
            task, request.part is not None and request.part in has_parts, "wrong", open_parts=still
        )

    request = replace(REQUEST, assignment=str(folder))
    with patch.object(module, "run_judge", run_judge):
        result = module.best_result(task, request, time.monotonic() + 60)
        late = module.best_result(task, request, time.monotonic() + 0.5)
    tried = [
        s for i, s in enumerate(shares) if i in has_parts and i in still and (has_answers or not names[i])
    ]
    assert result.score == round(max(tried, default=0) * points + 1e-9)
    assert not result.passed and result.message == "wrong"
    assert late.part is None and "took all the time" in late.message


NUMBERS = st.sets(st.integers(0, 3))


@given(SHARES, NUMBERS, NUMBERS, st.integers(0, 60), st.booleans(), NUMBERS)
def test_the_best_part_counts(tmp_path_factory, shares, has_parts, supplied, points, has_answers, refuted):
    folder = tmp_path_factory.mktemp("part")
    best_part_counts(grade, folder, shares, has_parts, supplied, points, has_answers, refuted)


NO_TIME = "if (left := end - time.monotonic()) <= 1:\n        return"
BUGS: dict[str, tuple[tuple[str, str], tuple[Any, ...]]] = {
    "the smallest share": (("-item[1].share", "item[1].share"), ([0.2, 0.5], {0, 1}, (), 10, True)),
    "any part": (("if run_judge(task", "if True or run_judge(task"), ([0.5, 0.2], {1}, (), 10, True)),
    "parts without answers": (("if part.supplied and", "if False and"), ([0.5], {0}, {0}, 10, False)),
    "all parts": (
        ("for number in result.open_parts]", "for number in range(len(task.parts))]"),
        ([0.5], (), (), 10, True, {0}),
    ),
    "no time left": ((NO_TIME, NO_TIME.replace("<= 1", "<= -60")), ([0.5], {0}, (), 10, True)),
}


@pytest.mark.parametrize("bug", BUGS)
def test_the_law_catches(bug, tmp_path):
    change, arguments = BUGS[bug]
    with pytest.raises(AssertionError):
        best_part_counts(mutant("minigrad_course.grading.grade", change), tmp_path, *arguments)


# In processes

PARTS = (
    'SimpleNamespace(total=lambda comm, x: x), examples=15,\n        parts=(Part("on one or two ranks", 0.5, '
    'lambda case: case.ranks <= 2), Part("with double of the answers", 1.0, supplied=("double",))),'
)
FEW_RANKS = "if comm.size > 2: return x\n    "
BY_DOUBLE = TOTAL.replace("return x +", "return double(x) - x +")  # right with a right double
HALF = "def double(x):\n    return x\n"


@pytest.fixture
def total(toys, graded):
    """Grades the task total of the toy, with parts, and returns its result and the report."""
    text = TASKS.replace("SimpleNamespace(total=lambda comm, x: x), examples=15,", PARTS)
    (toys / "a1_toy" / "tasks.py").write_text(
        text.replace("import Task,", "import Part, Task,") + "TASKS = TASKS[:1]\n", encoding="utf-8"
    )

    def total(text):
        report = graded(text)
        return report.results[0], report

    return total


def test_easier_cases_earn_their_share(total):
    text = TOTAL.replace("    for other", f"    {FEW_RANKS}for other", 1)
    result, report = total(text + DOUBLE)
    assert (result.score, result.passed) == (30, False) and "3 ranks" in result.message
    assert result.open_parts == (0, 1)
    assert failures(report.assignment, [Entry(report.submission.file, report)])[0][1] == 1
    said = "30 of 60 points: right on one or two ranks"
    (test,) = as_gradescope(report)["tests"]
    assert test["score"] == 30 and test["status"] == "failed" and said in test["output"]
    assert as_json(report)["tasks"][0]["part"] == "on one or two ranks" and said in as_junit(report)


def test_a_mistake_in_another_task_costs_nothing(total, toys):
    assert "NotImplementedError" not in (toys / "a1_toy" / "answers.py").read_text(encoding="utf-8")
    result, report = total(BY_DOUBLE + HALF)
    assert failures(report.assignment, [Entry(report.submission.file, report)])[0][1] == 0
    assert as_gradescope(report)["tests"][0]["status"] == "passed"
    assert (result.score, result.passed, result.open_parts) == (60, False, (1,))  # 1 rank fails: not 0
    assert result.part is not None and result.part.title == "with double of the answers"
    assert (
        total(BY_DOUBLE.replace("double(x) - x", "double(x) - 2 * x") + HALF)[0].score == 0
    )  # its own mistake
    (toys / "a1_toy" / "answers.py").unlink()
    assert total(BY_DOUBLE + HALF)[0].score == 0  # a handout
