"""The syllabus says what the lessons and the assignments' texts say, and each stands in it once."""

import re
from pathlib import Path

import pytest
from minigrad_course import LESSONS
from minigrad_course.lesson.lessons import lessons

ASSIGNMENTS = sorted((LESSONS / "assignments").glob("a*/README.md"))
SYLLABUS = (LESSONS / "teaching" / "syllabus.md").read_text(encoding="utf-8")


def weeks(text):
    """Each week of the ten: its lessons, its assignment and the hours that it takes."""
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]
    return [(row[2].split(", "), row[3], row[4]) for row in rows if row and row[0].isdigit()]


def syllabus_is_true(text):
    plan = weeks(text)
    assert len(plan) == 10
    assert [one for taught, _, _ in plan for one in taught] == [one.number for one in lessons()]
    hours = {name: re.findall(r"\d+", time) for _, name, time in plan if name}
    texts = {
        file.parent.name.partition("_")[0]: " ".join(file.read_text(encoding="utf-8").split())
        for file in ASSIGNMENTS
    }
    assert sorted(hours) == sorted(texts)
    for name, times in hours.items():
        assert re.findall(r"(\d+) to (\d+) hours", texts[name])[0] == tuple(times), name
    least, most = (sum(int(times[i]) for times in hours.values()) for i in (0, 1))
    words = " ".join(text.split())
    assert re.search(rf"take {least} to {most} hours", words)
    a_week = [round(total / 10 + 3 * 1.5 + 1) for total in (least, most)]  # three classes, and the reading
    assert re.search(r"about {} to {} hours a week".format(*a_week), words), a_week
    for _, name, _ in plan:  # an assignment comes with the last lesson that its text asks for, or later
        done = [one for taught, at, _ in plan[: [at for _, at, _ in plan].index(name) + 1] for one in taught]
        assert not name or set(re.findall(r"\.\./\.\./(\d\d)_", texts[name][:600])) <= set(done), name


def test_the_syllabus_is_true():
    syllabus_is_true(SYLLABUS)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("| 13 |", "| 12 |"),
        ("| a2 | 6 to 9", "| a2 | 6 to 8"),
        ("64 to 93", "63 to 93"),
        ("12 to 15 hours", "10 to 13 hours"),
        ("| a7 |", "| a8 |"),
    ],
)
def test_the_law_of_the_syllabus_catches(right, wrong):
    assert SYLLABUS.count(right) == 1
    with pytest.raises(AssertionError):
        syllabus_is_true(SYLLABUS.replace(right, wrong))


def test_the_number_of_questions_is_the_one_of_the_text():
    text = " ".join((LESSONS / "README.md").read_text(encoding="utf-8").split())
    assert "three to nine questions beside it," in text
    for lesson in lessons():
        questions = lesson.file.with_name("questions.py").read_text(encoding="utf-8").count("\nPREDICTION_")
        parts = len(re.findall(r"^# ## \d", lesson.file.read_text(encoding="utf-8"), re.MULTILINE))
        right = {"06": {6}, "11": {6}, "14": {8}, "15": {8}, "17": {parts}, "18": {parts}, "19": {parts}}.get(
            lesson.number, {3, 4}
        )
        assert questions in right, f"lesson {lesson.number} has {questions} questions"


def test_every_work_that_is_read_is_in_the_list():
    reading = SYLLABUS.partition("## Reading")[2]
    for cells in (line.split("|") for line in SYLLABUS.splitlines() if re.match(r"\| \d", line)):
        for name, year in re.findall(r"(\w[\w-]+)(?: et al\.| and [\w-]+)? (\d{4})", cells[6]):
            assert re.search(rf"^- .*{name}.* {year},", reading, re.MULTILINE), (name, year)


def test_the_paper_cites_what_is_in_its_bibliography():
    folder = Path(LESSONS / "teaching" / "paper")
    paper, entries = (
        (folder / "paper.md").read_text(encoding="utf-8"),
        (folder / "paper.bib").read_text(encoding="utf-8"),
    )
    assert set(re.findall(r"@(\w+\d{4}\w*|minitorch)", paper)) == set(
        re.findall(r"^@\w+\{(\w+)", entries, re.M)
    )
