"""Every lesson has the form of a lesson: an opening, short cells, and what was proved.

Laws of ``minigrad_course.lesson.lessons`` and of the lessons' own files.
"""

import ast
import re

import pytest
from minigrad_course import LESSONS
from minigrad_course.lesson.lessons import Lesson, lessons
from minigrad_course.site.cells import read_cells

ALL = lessons()
LONGEST_CELL = 30  # lines of code, blank ones left out: what one sees at once
WORDS, LINES, QUESTION = 150, 12, 3  # words and lines of code in a minute; minutes for a question
CLOSING = "## What was proved"
LINK = re.compile(r"\]\(([^)#]+)\)")


def opening_is_complete(lesson):
    """What the slide asks, what one needs, what one can do after it, and the time."""
    assert lesson.question.endswith("?"), f"The slide asks: {lesson.question!r} is no question"
    for label, text in (("You need", lesson.needs), ("After this you can", lesson.goal)):
        assert text.endswith("."), f"{label}: {text!r} is no sentence"
    earlier = [number for number in re.findall(r"\b[01]\d\b", lesson.needs) if number < lesson.number]
    assert earlier or lesson.number == "01", f"You need: {lesson.needs!r} names no earlier lesson"
    assert 0 < lesson.seconds <= 60, f"the program runs for {lesson.seconds} s"


def minutes_are_those_of_its_words(lesson, source, questions):
    """The stated minutes are computed from words, lines of code and questions, to the nearest five."""
    cells = read_cells(source)
    words = sum(len(cell.text.split()) for cell in cells if cell.prose)
    lines = sum(len(lines_of(cell)) for cell in cells if not cell.prose)
    minutes = words / WORDS + lines / LINES + QUESTION * questions
    assert abs(lesson.minutes - minutes) <= 5, f"{lesson.minutes} minutes are stated, {minutes:.0f} computed"


def lines_of(cell):
    return [line for line in cell.text.splitlines() if line.strip()]


def cells_are_short(source):
    """No cell is longer than what one sees at once, but for the imports."""
    code = [cell for cell in read_cells(source) if not cell.prose]
    long = {cell.line: len(lines_of(cell)) for cell in code[1:] if len(lines_of(cell)) > LONGEST_CELL}
    assert not long, f"line: lines of code of its cell {long}"


def drawings_have_own_cells(source):
    """A cell that saves a picture only draws, so that a page can fold it: no assertion, nothing printed."""
    for cell in read_cells(source):
        if not cell.prose and "FIGURES /" in cell.text:
            nodes = [*ast.walk(ast.parse(cell.text))]
            asserts = any(isinstance(node, ast.Assert) for node in nodes)
            prints = any(isinstance(node, ast.Name) and node.id == "print" for node in nodes)
            assert not asserts and not prints, f"the cell of line {cell.line} draws and does more"


def closing_is_complete(source, folder, last):
    """The last cell lists at least two laws by links to their files, and names the next lesson."""
    cell = read_cells(source)[-1]
    assert cell.prose and cell.text.startswith(CLOSING), f"the last cell begins with {cell.text[:40]!r}"
    points = [block for block in re.split(r"\n(?=- )", cell.text) if block.startswith("- ")]
    assert len(points) >= 2, "fewer than two laws are listed"
    for point in points:
        links = LINK.findall(point.partition("\nNext: ")[0])
        assert any(link.startswith("../../tests/") for link in links), f"no law is linked in {point!r}"
    for link in LINK.findall(cell.text):
        assert (folder / link).exists(), f"{link} does not exist"
    assert last or re.search(r"^Next: \[", cell.text, re.MULTILINE), "no line begins with Next: ["


@pytest.fixture(params=ALL, ids=lambda lesson: lesson.number)
def lesson(request) -> Lesson:
    return request.param


@pytest.fixture
def source(lesson):
    return lesson.file.read_text(encoding="utf-8")


def test_the_opening_is_complete(lesson):
    opening_is_complete(lesson)


def test_the_minutes_are_those_of_its_words(lesson, source):
    questions = (lesson.file.parent / "questions.py").read_text(encoding="utf-8").count("# %% [markdown]")
    minutes_are_those_of_its_words(lesson, source, questions)


def test_cells_are_short(source):
    cells_are_short(source)


def test_drawings_have_own_cells(source):
    drawings_have_own_cells(source)


def test_the_closing_is_complete(lesson, source):
    closing_is_complete(source, lesson.file.parent, lesson is ALL[-1])


# The laws catch mistakes

RIGHT = '''"""Lesson 05. Sums.

Lecture section: sums.

The slide asks: what is a sum?

You need: lesson 02.

Time: about 5 minutes; the program runs for about 5 seconds.

After this you can: add numbers.
"""

# %%
import numpy as np

# %%
x = np.arange(3)
print(x)

# %%
save(drawings.numbers(x), FIGURES / "numbers.png")

# %% [markdown]
# ## What was proved
# - Sums are sums: [tests](../../tests/lessons/test_form.py).
# - So are means: [tests](../../tests/lessons/test_lessons.py).
#
# Next: [lesson 06](../06_data_parallel/lesson.py): why.
'''


@pytest.mark.parametrize(
    ("law", "right", "wrong"),
    [
        ("opening", "what is a sum?", "what a sum is."),
        ("opening", "You need: lesson 02.", "You need: lesson 06."),
        ("opening", "add numbers.", "add"),
        ("opening", "for about 5 seconds", "for about 90 seconds"),
        ("opening", "Time: about 5 minutes; the", "Time: the"),
        ("minutes", "about 5 minutes", "about 15 minutes"),
        ("cells", "print(x)\n", "print(x)\n" * 31),
        ("drawings", "save(drawings", "print(x)\nsave(drawings"),
        ("drawings", "save(drawings", "assert len(x) == 3\nsave(drawings"),
        ("closing", "## What was proved", "## What was seen"),
        ("closing", "# - So are means: [tests](../../tests/lessons/test_lessons.py).\n", ""),
        ("closing", "[tests](../../tests/lessons/test_lessons.py)", "see the tests"),
        ("closing", "tests/lessons/test_lessons.py", "tests/lessons/no_file.py"),
        ("closing", "Next: [lesson 06]", "Then comes [lesson 06]"),
    ],
)
def test_the_laws_of_the_form_catch(law, right, wrong, tmp_path):
    def keeps_the_law(text):
        file = tmp_path / "05_sums" / "lesson.py"
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
        lesson = Lesson.read(file)
        laws = {
            "opening": lambda: opening_is_complete(lesson),
            "minutes": lambda: minutes_are_those_of_its_words(lesson, text, 1),
            "cells": lambda: cells_are_short(text),
            "drawings": lambda: drawings_have_own_cells(text),
            "closing": lambda: closing_is_complete(text, LESSONS / "05_messages", last=False),
        }
        laws[law]()

    assert RIGHT.count(right) == 1
    keeps_the_law(RIGHT)
    with pytest.raises(AssertionError):
        keeps_the_law(RIGHT.replace(right, wrong))
