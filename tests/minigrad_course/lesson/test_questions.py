"""Laws of lessons/minigrad_course/lesson/questions.py: every question can be answered, the untouched file
answers none, and a prediction comes first.
"""

import os
from pathlib import Path

import pytest
from minigrad_course.lesson.questions import QUESTIONS, answered, check, questions_of

ROOT = Path(__file__).parents[3]
LESSONS = sorted(file.parent for file in (ROOT / "lessons").glob(f"[0-9]*/{QUESTIONS}"))
WITH_ASSIGNMENT = {"02", "05", "06", "08", "10", "11", "12", "13", "16"}
QUICK = LESSONS[::3]  # of the quick lane: a second each, in which the questions' programs run three times
OF_ALL_PARTS = {
    "06": 6,
    "11": 6,
    "14": 8,
    "15": 8,
    "17": 9,
    "18": 7,
    "19": 8,
}  # lessons of more parts, with more questions


@pytest.mark.parametrize(
    "lesson",
    [pytest.param(lesson, marks=[] if lesson in QUICK else [pytest.mark.thorough]) for lesson in LESSONS],
    ids=lambda folder: folder.name,
)
def test_questions_of_a_lesson(lesson, tmp_path):
    questions, text = questions_of(lesson), (lesson / QUESTIONS).read_text(encoding="utf-8")
    number = lesson.name[:2]
    assert len(questions) == OF_ALL_PARTS.get(number, 3 if number in WITH_ASSIGNMENT else 4)
    untouched = check(lesson)
    assert not any(one.answered for one in untouched) and all(
        "predict first" in one.text for one in untouched
    )

    def verdicts(text: str):
        (tmp_path / QUESTIONS).write_text(text, encoding="utf-8")
        os.utime(tmp_path / QUESTIONS, (1e9, 1e9))  # all within one second
        return check(lesson, tmp_path / QUESTIONS)

    for one in verdicts(answered(text, questions)):
        assert one.answered, one
    predicted = answered(text, [question._replace(edits=()) for question in questions])
    for one in verdicts(predicted):
        assert not one.answered and "make the edit" in one.text, one
    other = [question._replace(prediction="z") for question in questions]
    for one in verdicts(answered(text, other)):
        assert not one.answered and "you predicted z" in one.text, one


def test_the_command_checks(minigrad, tmp_path):
    status, out, _ = minigrad("lesson", "06", "--check")
    assert status == 1 and "0 of 6 answered" in out
    file = tmp_path / "mine.py"
    lesson = next(folder for folder in LESSONS if folder.name.startswith("06"))
    file.write_text(
        answered((lesson / QUESTIONS).read_text(encoding="utf-8"), questions_of(lesson)), encoding="utf-8"
    )
    status, out, _ = minigrad("lesson", "06", "--check", "--file", str(file))
    assert status == 0 and "6 of 6 answered" in out
    file.write_text("x = (", encoding="utf-8")
    status, _, err = minigrad("lesson", "06", "--check", "--file", str(file))
    assert status == 1 and "cannot be run: SyntaxError" in err and len(err.splitlines()) == 1, err
