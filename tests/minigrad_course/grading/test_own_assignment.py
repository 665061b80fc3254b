"""Laws of lessons/minigrad_course/grading/own_assignment.py, assignment.py and
lessons/minigrad_course/classroom/command.py: of an assignment of one's own the template grades at once, and a
grading that is wrong is noticed.
"""

from unittest.mock import patch

import pytest
from minigrad_course.grading import find_assignment, own_assignment
from minigrad_course.grading.assignment import load_file
from minigrad_course.grading.counterexample import counterexample
from minigrad_course.grading.grade import SubmissionFile
from minigrad_course.grading.own_assignment import TEMPLATE, Trial, mistakes, new_assignment, with_mistake

from tests.bugs.mutant import mutant

MISTAKES = """
from minigrad_course.grading.own_assignment import Mistake

MISTAKES = (Mistake("thrice", "2 * x", "3 * x", ("double",)),)
"""


@pytest.fixture
def own(tmp_path):
    new_assignment(tmp_path / "own" / "a1_mean")
    return find_assignment("a1", tmp_path / "own")


def test_the_templates_answers_and_mistakes_earn_what_they_should(own):
    """In this process; the command does the same with processes, on the toy below."""
    answers = SubmissionFile.read(own.answers)
    programs = [
        (answers.source, ()),
        (own.starter.read_text(encoding="utf-8"), ("center", "mean_over_ranks")),
    ]
    programs += [(with_mistake(answers, m).source, m.tasks) for m in mistakes(own)]
    assert own.points == 100 and len(programs) == 6
    for number, (source, expected) in enumerate(programs):
        (file := own.folder / f"program_{number}.py").write_text(source, encoding="utf-8")
        module = load_file(file, f"program_{number}")
        lost = [task.name for task in own.tasks if counterexample(task, module, shrink=False)]
        assert lost == list(expected), source


def test_a_copy_has_all_files_of_the_template(own):
    assert {file.name for file in own.folder.iterdir() if file.is_file()} == {
        *("README.md", "tasks.py", "submission.py", "answers.py", "instructor.md", "mistakes.py")
    }
    assert all((own.folder / file.name).read_bytes() == file.read_bytes() for file in TEMPLATE.glob("*.*"))


def check(minigrad, toys):
    return minigrad("assignment", "check", str(toys / "a1_toy"))


def test_the_command_says_what_is_right_and_what_is_wrong(minigrad, toys):
    (toys / "a1_toy" / "tasks.py").open("a", encoding="utf-8").write(
        "TASKS = TASKS[1:]\n"
    )  # that without ranks
    second = '    Mistake("turned round", "2 * x", "x * 2", ("double",)),\n)\n'
    (toys / "a1_toy" / "mistakes.py").write_text(MISTAKES.replace(",)\n", f",\n{second}"), encoding="utf-8")
    status, out, _ = check(minigrad, toys)
    assert status == 1 and out.splitlines() == [
        "right  answers.py: loses nothing",
        "right  submission.py: loses double",
        "right  thrice: loses double",
        "WRONG  turned round: loses nothing; it should lose double",
        "1 of these lose other tasks than they should",
    ]


def test_status_0_is_a_right_grading(minigrad, toys):
    for lost, expected in ((("double",), 0), ((), 1)):
        with patch.object(own_assignment, "trials", lambda one, lost=lost: [Trial("x", lost, ("double",))]):
            assert check(minigrad, toys)[0] == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (MISTAKES.replace("2 * x", "4 * x"), "holds '4 * x' 0 times; the mistake 'thrice' needs it"),
        (MISTAKES.replace('"double"', '"triple"'), "mistakes.py, 'thrice': there is no task 'triple'"),
    ],
)
def test_a_mistake_that_is_none_is_refused(text, words, minigrad, toys):
    (toys / "a1_toy" / "mistakes.py").write_text(text, encoding="utf-8")
    status, _, err = check(minigrad, toys)
    assert status == 1 and words in err and err.count("\n") == 1, err


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (["new", "full/a1_full"], "is not an empty folder; name a new one"),
        (["new", "mean"], "the folder of an assignment is called like a1_topic, and not mean"),
        (["check", "a1_none"], "there is no a1_none/tasks.py; minigrad assignment new a1_none makes one"),
        (["delete", "a1_none"], "unknown action 'delete'; choose one of new, check"),
    ],
)
def test_a_mistake_is_answered_in_one_line(line, words, minigrad, tmp_path):
    (tmp_path / "full" / "a1_full").mkdir(parents=True)
    (tmp_path / "full" / "a1_full" / "note").write_text("mine", encoding="utf-8")
    status, _, err = minigrad("assignment", *line)
    assert status == 1 and words in err and err.count("\n") == 1, err
    assert (tmp_path / "full" / "a1_full" / "note").read_text(encoding="utf-8") == "mine"


def test_the_check_catches_a_trial_that_is_always_right():
    module = mutant(
        "minigrad_course.grading.own_assignment", ("set(self.lost) == set(self.expected)", "True")
    )
    assert module.Trial("x", (), ("a",)).as_expected
    assert not Trial("x", (), ("a",)).as_expected and Trial("x", ("a", "b"), ("b", "a")).as_expected
