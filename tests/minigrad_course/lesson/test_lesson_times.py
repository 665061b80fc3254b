"""Laws of lessons/minigrad_course/lesson/command.py and lessons.py: the list says what each slide asks
and how many minutes it takes; a lesson says beforehand how long it runs; an installed file is nobody's to
answer in.
"""

from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st
from minigrad_course import LESSONS
from minigrad_course.lesson import lessons as own

from tests.bugs.mutant import mutant

FIRST = own.lessons()[0]
TEXT = '''"""Lesson 01. Slopes: compute one.

Lecture section: gradient descent.

The slide asks: {question}?

Time: about {minutes} minutes; the program runs for about {seconds} seconds.
"""
'''


@pytest.fixture
def listed(tmp_path, monkeypatch, capsys):
    """What ``minigrad lesson WORDS`` prints where ``texts`` are the docstrings of all lessons."""

    def listed(module, lessons, *words):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("COLUMNS", "100")
        module.__dict__["lessons"] = lambda: lessons
        module.__dict__["supervise"] = lambda *arguments, **settings: 0
        try:
            module.lesson(*words)
        except SystemExit as end:
            assert end.code == 0
        return capsys.readouterr().out

    return listed


def the_times_are_said(module: ModuleType, listed) -> None:
    """Of a lesson with times, and of one without: there nothing is said, rather than 0."""
    timed = replace(FIRST, question="How far down?", minutes=45, seconds=20)
    untimed = replace(FIRST, number="02", section="somewhere else", question="", minutes=0, seconds=0)
    rows = [line for line in listed(module, [timed, untimed]).splitlines() if line.startswith("│ 0")]
    cells = [[cell.strip() for cell in row.strip("│").split("│")] for row in rows]
    assert cells == [
        ["01", FIRST.topic, "How far down?", "45", ""],
        ["02", FIRST.topic, "somewhere else", "", ""],
    ]
    said = listed(module, [timed, untimed], "01").splitlines()[0]
    assert (
        said == "lesson 01 runs, for about 20 s; 45 minutes with its questions; the file to read beside it:"
    )
    assert (
        listed(module, [timed, untimed], "02").splitlines()[0]
        == "lesson 02 runs; the file to read beside it:"
    )


def test_the_times_are_said(listed):
    the_times_are_said(mutant("minigrad_course.lesson.command"), listed)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('str(one.minutes or "")', "str(one.minutes)"),
        ("one.question or one.section", "one.section"),
        ("runs{chosen.run_time}", "runs"),
        ("{chosen.minutes} minutes", "{chosen.seconds} minutes"),
    ],
)
def test_a_time_that_is_not_said_is_seen(old, new, listed):
    with pytest.raises(AssertionError):
        the_times_are_said(mutant("minigrad_course.lesson.command", (old, new)), listed)


@given(st.integers(1, 200), st.integers(1, 90), st.sampled_from(["How far", "Which one is\nfaster, and why"]))
def test_the_docstring_has_the_times(tmp_path_factory, minutes, seconds, question):
    file = tmp_path_factory.mktemp("01_slopes") / "lesson.py"
    text = TEXT.format(minutes=minutes, seconds=seconds, question=question)
    file.write_text(text, encoding="utf-8")
    lesson = own.Lesson.read(file)
    assert (lesson.minutes, lesson.seconds) == (minutes, seconds)
    assert lesson.question == f"{' '.join(question.split())}?"
    assert (lesson.topic, lesson.section) == ("Slopes", "gradient descent")
    assert lesson.run_time == f", for about {seconds} s"


def nobody_answers_in_an_installation(module: ModuleType) -> None:
    """There the next command copies the course; in a file of one's own it checks that file."""
    module.__dict__["is_installed"] = lambda file: file.is_relative_to(LESSONS)
    questions = FIRST.file.with_name("questions.py")
    assert module.to_answer(FIRST, questions, "").command == "minigrad lesson --copy course"
    assert (
        module.to_answer(FIRST, Path("my q.py"), "").command == "minigrad lesson 01 --check --file 'my q.py'"
    )
    module.__dict__["is_installed"] = lambda file: False
    assert module.to_answer(FIRST, questions, "").command == "minigrad lesson 01 --check"


def test_nobody_answers_in_an_installation():
    nobody_answers_in_an_installation(mutant("minigrad_course.lesson.command"))
    for change in (
        ("if is_installed(questions)", "if False"),
        ("[] if beside else", "[] if not beside else"),
    ):
        with pytest.raises(AssertionError):
            nobody_answers_in_an_installation(mutant("minigrad_course.lesson.command", change))
