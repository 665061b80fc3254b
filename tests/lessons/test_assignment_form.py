"""The texts of all assignments have one form, for students and for instructors.

Laws of lessons/assignments/*/README.md and lessons/assignments/*/instructor.md, with the points of
``minigrad_course.grading.assignment``.
"""

import re

import pytest
from minigrad_course.grading.assignment import find_assignments
from minigrad_course.grading.own_assignment import TEMPLATE
from minigrad_course.lesson.lessons import paragraph

ASSIGNMENTS = {one.name.partition("_")[0]: one for one in find_assignments()}
BEFORE = ["What you write", "Rules for all tasks"]
AFTER = ["How to try it", "How you are graded", "Before you hand in", "Reading", "To think about, ungraded"]
INSTRUCTOR = ["What is checked", "Common mistakes, and what shows them", "To vary"]
MOTIVE = r"You need: .+?\n\nTime: \d+ to \d+ hours\. Points: {}\.\n\n\w.+?\n\n## "


def sections(text):
    """The text of each section, by its heading, in order."""
    parts = re.split(r"^## (.+)\n", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def table(text):
    """The rows of the first table, without its head, as lists of cells."""
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line[:1] == "|"]
    return rows[2:]


def text_has_the_form(text, name, assignment):
    """A title, what one needs, the time; then the sections, with the points and tasks of the grader."""
    assert text.startswith(f"# Assignment {name[1:]}: "), f"the title is {text.splitlines()[0]!r}"
    section = paragraph(text, "Lecture section") or paragraph(text, "Lecture sections")
    assert section.endswith("."), f"Lecture section: {section!r} is no sentence"
    assert re.search(r"lessons? \[\d\d\]\(", paragraph(text, "You need")), "You need: links no lesson"
    assert re.search(MOTIVE.format(assignment.points), text, re.DOTALL), (
        "hours, points, and why, in this order"
    )

    parts = sections(text)
    numbered = [heading for heading in parts if heading[0].isdigit()]
    assert list(parts) == BEFORE + numbered + AFTER, f"the sections are {', '.join(parts)}"
    rows = table(parts["What you write"])
    assert sum(int(cell) for row in rows for cell in row if cell.isdigit()) == assignment.points
    assert [row[0].partition(".")[0] for row in rows] == [str(i + 1) for i in range(len(rows))]
    spans = [[int(n) for n in re.findall(r"\d+", heading.partition(".")[0])] for heading in numbered]
    of_headings = [n for span in spans for n in range(span[0], span[-1] + 1)]
    assert of_headings == [*range(1, len(rows) + 1)], f"the tasks {of_headings} have headings, of {len(rows)}"

    rules = re.findall(r"^- ", parts["Rules for all tasks"], re.MULTILINE)
    assert len(rules) >= 3, f"{len(rules)} rules hold for all tasks"
    command = f"    minigrad grade {name} --submission my_{name}.py"
    tasks = re.findall(rf"^{re.escape(command)} --task (\w+)$", parts["How to try it"], re.MULTILINE)
    assert f"{command}\n" in parts["How to try it"], f"How to try it: no line {command.strip()}"
    assert tasks and tasks[0] in {task.name for task in assignment.tasks}, f"--task {tasks} names no task"
    after = parts["How to try it"].partition("*counterexample*:\n\n")[2]
    assert re.match(r" {4}\w", after), "How to try it shows no counterexample"
    assert "a seed that you do not know" in parts["How you are graded"]
    assert "(tasks.py)" in parts["How you are graded"]
    checks = re.findall(r"^\d\. .+", parts["Before you hand in"], re.MULTILINE)
    assert [check[0] for check in checks] == ["1", "2", "3"], f"{len(checks)} checks, expected 3"


def instructor_text_has_the_form(text, name, assignment, hours):
    """Points and hours as in the students' text, the commands, and a table of mistakes whose tasks exist."""
    assert text.startswith(f"# Assignment {name[1:]}, for the instructor\n\n")
    words = " ".join(text.split())
    assert f"{assignment.points} points; {hours}" in words, f"not {assignment.points} points; {hours}"
    assert f"    minigrad grade {name} --submission their_file.py --seed" in text
    assert f"    minigrad grade {name} --answers" in text
    parts = sections(text)
    assert list(parts) == INSTRUCTOR, f"the sections are {', '.join(parts)}"
    mistakes = table(parts[INSTRUCTOR[1]])
    assert len(mistakes) >= 8 and all(len(row) == 3 for row in mistakes), f"{len(mistakes)} mistakes"
    assert len(re.findall(r"^- ", parts["To vary"], re.MULTILINE)) >= 2, "fewer than two variations"


def text_of(name, file="README.md"):
    return (ASSIGNMENTS[name].folder / file).read_text(encoding="utf-8")


def hours_of(text):
    return re.findall(r"\d+ to \d+ hours", text)[0]


@pytest.mark.parametrize("name", ASSIGNMENTS)
def test_the_text_has_the_form(name):
    text_has_the_form(text_of(name), name, ASSIGNMENTS[name])


@pytest.mark.parametrize("name", ASSIGNMENTS)
def test_the_instructors_text_has_the_form(name):
    hours = hours_of(text_of(name))
    instructor_text_has_the_form(text_of(name, "instructor.md"), name, ASSIGNMENTS[name], hours)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("# Assignment 2:", "# Assignment 3:"),
        ("You need: lesson [05]", "You need: messages [05]"),
        ("hours. Points: 100.", "hours. Points: 90."),
        ("## What you write", "## What to write"),
        ("| 15 | rank 0 adds", "| 20 | rank 0 adds"),
        ("| 2. `ring_reduce_scatter", "| 3. `ring_reduce_scatter"),
        ("## 3. The ring: all-gather", "### 3. The ring: all-gather"),
        ("## Rules for all tasks", "## The communicator\n\nIt is given.\n\n## Rules for all tasks"),
        ("my_a2.py\n    minigrad grade", "my_a2.py --seed 1\n    minigrad grade"),
        ("--task ring_allgather", "--task ring_gather"),
        ("*counterexample*:\n\n    3 ranks", "*counterexample*:\n\n3 ranks"),
        ("with a seed that you do not know", "with another seed"),
        ("2. They pass on real processes", "- They pass on real processes"),
        ("## To think about, ungraded", "## Questions"),
    ],
)
def test_the_law_of_the_text_catches(right, wrong):
    text = text_of("a2")
    assert text.count(right) == 1
    with pytest.raises(AssertionError):
        text_has_the_form(text.replace(right, wrong), "a2", ASSIGNMENTS["a2"])


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("# Assignment 2,", "# Assignment 3,"),
        ("100 points; 6 to 9 hours", "100 points; 5 to 9 hours"),
        ("grade a2 --answers", "grade a3 --answers"),
        ("## What is checked", "## Checks"),
        ("| cuts into `len(x) // p` |", "|"),
        ("## To vary\n\n- ", "## To vary\n\n"),
    ],
)
def test_the_law_of_the_instructors_text_catches(right, wrong):
    text, hours = text_of("a2", "instructor.md"), hours_of(text_of("a2"))
    assert text.count(right) == 1
    wrong_text = text.replace(right, wrong)
    if right.startswith("## To vary"):  # which has three variations: one remains
        wrong_text = wrong_text.replace("\n- Instead of task 5", "\nInstead of task 5")
    with pytest.raises(AssertionError):
        instructor_text_has_the_form(wrong_text, "a2", ASSIGNMENTS["a2"], hours)


def test_a_new_assignment_has_the_sections():
    text, instructor = (
        (TEMPLATE / name).read_text(encoding="utf-8") for name in ("README.md", "instructor.md")
    )
    numbered = [heading for heading in sections(text) if heading[0].isdigit()]
    assert list(sections(text)) == BEFORE + numbered + AFTER and len(numbered) == 2
    assert list(sections(instructor)) == INSTRUCTOR
    assert re.search(MOTIVE.format(100), text, re.DOTALL)
