"""Laws of lessons/minigrad_course/handout/handout.py, sealed_source.py and command.py: a handout holds no
answer, which its text tells and not its names; it runs, and has all that it imports.
"""

import ast
import inspect
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zlib
from functools import cache
from pathlib import Path

import pytest
from minigrad_course.grading.assignment import FOLDER, find_assignment
from minigrad_course.grading.counterexample import counterexample
from minigrad_course.handout import command, handout, sealed_source
from minigrad_course.lesson import questions
from minigrad_course.lesson.lessons import lessons

from tests.assignments.submissions import submission
from tests.bugs.mutant import mutant

ROOT = Path(__file__).parents[3]
PACKAGES = {"minigrad", "backends", "minigrad_course"}


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    folder = tmp_path_factory.mktemp("handout") / "tree"
    handout.write_handout(folder)
    return folder


def lines_of(text):
    """The lines of a program that say something."""
    lines = [" ".join(line.split()) for line in text.splitlines()]
    return [line for line in lines if len(line) > 8 and not line.startswith(("from ", "import ", "@", "#"))]


@cache
def definitions(text):
    """The bodies of the functions of a program, without docstrings and layout, if they are long enough."""
    functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
    bodies = ["\n".join(ast.unparse(x) for x in node.body if not is_docstring(x)) for node in functions]
    return {body for body in bodies if len(body) > 60 and len(lines_of(body)) > 1}


@cache
def imports(text):
    """Level and name of each module that a program imports."""
    nodes = list(ast.walk(ast.parse(text)))
    names = {(0, alias.name) for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return names | {(node.level, node.module) for node in nodes if isinstance(node, ast.ImportFrom)}


def is_docstring(node):
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def right_parts_of_a8():
    """The right implementations that the grader of a8 tries properties on: they are answers to its parts."""
    tasks = find_assignment("a8").tasks
    right = inspect.getclosurevars(tasks[1].check).globals["RIGHT"]
    return "\n".join(inspect.getsource(one) for group in right.values() for one in group)


def secrets():
    """The text of all answers: the library's, the solutions in the tests, and the notes for instructors."""
    files = [*FOLDER.glob("*/answers.py"), *(ROOT / "lessons").glob("[0-9]*/answers.py")]
    files += [*(ROOT / "tests" / "assignments").glob("solved_*.py")]
    notes = [file.read_text(encoding="utf-8") for file in FOLDER.glob("*/instructor.md")]
    assert len(files) >= 30 and len(notes) == 10
    return [file.read_text(encoding="utf-8") for file in files] + [right_parts_of_a8()], notes


def public():
    """The bodies of the functions that students are meant to read: of lessons and starters."""
    files = [*(ROOT / "lessons").glob("[0-9]*/lesson.py"), *FOLDER.glob("*/submission.py")]
    return set().union(*(definitions(file.read_text(encoding="utf-8")) for file in files))


# The laws of a tree


def holds_no_answer(tree):
    """No function of an answer, under any name, and no paragraph of the notes, in any file of the lessons."""
    programs, notes = secrets()
    bodies = set().union(*map(definitions, programs)) - public()
    paragraphs = {line for text in notes for line in lines_of(text) if len(line) > 60}
    for file in (file for file in (tree / "lessons").rglob("*") if file.is_file()):
        try:
            text = file.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        shared = paragraphs & set(lines_of(text))
        if file.suffix == ".py":
            shared |= bodies & definitions(text)
        assert not shared, f"{file.relative_to(tree)} holds {min(shared)!r}"


def imports_what_it_holds(tree):
    """Each module of the project, each sibling, and each file that a program loads by its name, is in it."""
    for file in tree.rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        for level, module in imports(text):
            package = ".".join(file.relative_to(tree).parts[:-level]) if level else ""
            name = ".".join(filter(None, (package, module)))
            path = Path(*name.split("."))
            within = name.split(".")[0] in PACKAGES
            sibling = (ROOT / file.relative_to(tree)).parent / path.with_suffix(".py")
            if within or (sibling.is_file() and name not in sys.stdlib_module_names):
                top = tree / "lessons" if name.startswith("minigrad_course") else tree
                base = top / path if within else file.parent / path
                assert base.is_dir() or base.with_suffix(".py").is_file(), f"{file}: {name}"
        for name in re.findall(r'load_file\(\S+ / "(\w+\.py)"', text):
            if "assignments" in file.parts:
                assert (file.parent / name).is_file(), f"{file}: {name}"


def links_to_what_it_holds(tree):
    for file in tree.rglob("*.md"):
        for target in re.findall(r"\]\((?![a-z]+:|#)([^)#]+)", file.read_text(encoding="utf-8")):
            assert (file.parent / target).exists(), f"{file}: {target}"


LAWS = (holds_no_answer, imports_what_it_holds, links_to_what_it_holds)


@pytest.mark.parametrize("law", LAWS)
def test_a_handout_keeps(law, tree):
    law(tree)


def test_it_has_the_texts_the_starters_and_the_questions(tree):
    for pattern in (
        "assignments/*/README.md",
        "assignments/*/submission.py",
        "*/questions.py",
        "*/lesson.py",
    ):
        here = [file.relative_to(ROOT) for file in (ROOT / "lessons").glob(pattern)]
        assert here and all((tree / file).is_file() for file in here)


BUGS = {  # of handout.py
    "answers of lessons and assignments": (
        holds_no_answer,
        ('("answers.py", "instructor.md")', '("instructor.md",)'),
    ),
    "notes for instructors": (holds_no_answer, ('("answers.py", "instructor.md")', '("answers.py",)')),
    "right implementations": (
        holds_no_answer,
        ('("README.md", "submission.py")}', '("README.md", "classes.py")}'),
    ),
    "a grader without its cases": (
        imports_what_it_holds,
        ('("README.md", "submission.py")}', '("README.md", "submission.py", "tasks.py")}'),
    ),
    "a package left out": (
        imports_what_it_holds,
        ('"minigrad", "backends", "lessons")', '"backends", "lessons")'),
    ),
    "links as they were": (links_to_what_it_holds, ("else match[1]", "else match[0]")),
}


@pytest.mark.parametrize("bug", BUGS)
def test_the_laws_catch(bug, tmp_path):
    law, change = BUGS[bug]
    broken = mutant("minigrad_course.handout.handout", change)
    broken.write_handout(tmp_path / "tree")
    with pytest.raises(AssertionError):
        law(tmp_path / "tree")


# Answers that stand where no answer is expected: a teacher's own copy, under any name


@pytest.fixture
def root(tmp_path):
    """A small repository: one lesson, one assignment."""
    for folder in ("06_data_parallel", "assignments/a2_allreduce"):
        shutil.copytree(ROOT / "lessons" / folder, tmp_path / "root" / "lessons" / folder)
    return tmp_path / "root"


def answers_are_met_by_content(module, root, name, answer):
    """Lines of an answer in a file of another name are refused by that name, and nothing is written."""
    file = root / "lessons" / name
    file.parent.mkdir(exist_ok=True)
    with file.open("a", encoding="utf-8") as stream:
        stream.write(f"\n# copied\n{answer}")
    with pytest.raises(ValueError, match=f"{re.escape(str(file))} holds lines of lessons/") as caught:
        module.write_handout(root.parent / "tree", root)
    assert "\n" not in str(caught.value) and not (root.parent / "tree").exists()


PLACES = (
    "assignments/a2_allreduce/submission.py",
    "06_data_parallel/questions.py",
    "solution.txt",
    "new/mine.py",
)
ANSWERED = (
    "06_data_parallel/answers.py",
    "assignments/a2_allreduce/answers.py",
    "assignments/a2_allreduce/instructor.md",
)


@pytest.mark.parametrize("name", PLACES)
@pytest.mark.parametrize("answer", ANSWERED)
def test_answers_are_met_by_content(name, answer, root):
    answers_are_met_by_content(
        handout, root, name, indented((root / "lessons" / answer).read_text(encoding="utf-8"))
    )


def indented(text):
    """The second half of a text, further to the right."""
    lines = text.splitlines()
    return "\n".join(f"    {line}" for line in lines[len(lines) // 2 :])


@pytest.mark.parametrize(
    "change",
    [
        ("for file, answer in copies(lessons, answers)", "for file, answer in copies(lessons, [])"),
        ("[line.strip() for line", "[line for line"),
        ("if window in source", "if False"),
    ],
)
def test_the_law_catches_a_handout_that_reads_names_alone(change, root):
    answer = indented((root / "lessons" / ANSWERED[1]).read_text(encoding="utf-8"))
    with pytest.raises(pytest.fail.Exception):
        answers_are_met_by_content(mutant("minigrad_course.handout.handout", change), root, PLACES[2], answer)


# The commands


def test_only_an_empty_folder_is_written_to(root, tmp_path, capsys):
    (tmp_path / "file").write_text("", encoding="utf-8")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "note").write_text("mine", encoding="utf-8")
    for name in ("file", "full"):
        with pytest.raises(ValueError, match="is not an empty folder; name a new one") as caught:
            command.handout(tmp_path / name)
        assert "\n" not in str(caught.value)
    assert [file.name for file in (tmp_path / "full").iterdir()] == ["note"]
    (tmp_path / "empty").mkdir()
    assert handout.write_handout(tmp_path / "empty", root) > 0


@pytest.fixture
def run(tree):
    """Runs a command in the tree, on what is in the tree."""

    def run(*line):
        command, paths = [sys.executable, "-m", "backends", *line], f"{tree}{os.pathsep}{tree / 'lessons'}"
        env = {**os.environ, "PYTHONPATH": paths}
        return subprocess.run(command, cwd=tree, env=env, capture_output=True, encoding="utf-8", timeout=200)

    return run


def test_the_handout_runs_and_says_in_one_line_what_it_lacks(run):
    checked = run("lesson", "06", "--check")
    assert checked.returncode == 1 and "0 of 6 answered" in checked.stdout, checked
    process = run("grade", "a2", "--answers")
    assert process.returncode == 1 and "a handout does not" in process.stderr, process
    assert process.stderr.count("\n") == 1


def test_a8_is_graded_from_sealed_programs(tree):
    a8 = find_assignment("a8", tree / "lessons" / "assignments")
    assert [task.name for task in a8.tasks] == [task.name for task in find_assignment("a8").tasks]
    task = a8.only("property_2").tasks[0]
    assert counterexample(task, submission("solved_a8.py"), examples=5) is None
    assert counterexample(task, task.broken, shrink=False) is not None


@pytest.mark.thorough
def test_a8_is_graded_by_the_command(run):
    solved = run("grade", "a8", "--task", "property_2", str(ROOT / "tests" / "assignments" / "solved_a8.py"))
    assert solved.returncode == 0 and "10 of  10 points" in solved.stdout, solved


# What checks answers is sealed


def questions_tell_right_from_wrong(tree, number):
    """In the tree of students all right answers are answered, and a wrong letter is not."""
    (lesson,) = (tree / "lessons").glob(f"{number}_*")
    (original,) = (ROOT / "lessons").glob(f"{number}_*")
    text, right = (lesson / "questions.py").read_text(encoding="utf-8"), questions.questions_of(original)
    wrong = [question._replace(prediction="z") for question in right]
    for expected, answers in ((True, right), (False, wrong)):
        file = tree.parent / f"mine_{number}.py"
        file.write_text(questions.answered(text, answers), encoding="utf-8")
        verdicts = questions.check(lesson, file)
        assert [verdict.answered for verdict in verdicts] == [expected] * len(right), verdicts
    assert not any(verdict.answered for verdict in questions.check(lesson))


NUMBERS = [lesson.number for lesson in lessons()]


@pytest.mark.parametrize(
    "number", [n if n in ("06", "13") else pytest.param(n, marks=pytest.mark.thorough) for n in NUMBERS]
)
def test_in_a_handout_questions_are_checked(number, tree):
    questions_tell_right_from_wrong(tree, number)


def seals(module, source, texts):
    """The sealed form holds none of the texts, and unpacked it holds none either."""
    packed = module.seal(source, "a lesson")
    assert "\n" not in packed.removeprefix(module.HEADER).strip()
    file = module.sealed_file(Path(tempfile.mkdtemp()) / "answers.py")
    file.write_text(packed, encoding="utf-8")
    unpacked = module.read_source(file.with_name("answers.py"))
    shutil.rmtree(file.parent)
    for text in texts:
        assert text not in packed and text not in unpacked, text


LESSONS_ANSWERS = sorted((ROOT / "lessons").glob("[0-9]*/answers.py"))


def letters_and_edits(answers):
    """What a sealed program must not hold: a letter, and code to be written (settings are no secret)."""
    edits = [new for question in questions.load(answers).QUESTIONS for _, new in question.edits]
    letters = [f"Question({quote}{letter}{quote}" for letter in "abcd" for quote in "'\""]
    return letters + [repr(edit)[1:-1] for edit in edits if "return" in edit and len(edit) > 25]


@pytest.mark.parametrize("answers", LESSONS_ANSWERS, ids=lambda file: file.parent.name)
def test_no_letter_and_no_edit_is_in_a_sealed_program(answers):
    seals(sealed_source, answers.read_text(encoding="utf-8"), letters_and_edits(answers))


@pytest.mark.parametrize(
    "change",
    [
        ("call.args[2] = ", "ignored = "),
        ("    if questions:\n", "    if not questions:\n"),
        ("prediction.value = hash_of", "ignored = hash_of"),
        ("zlib.compress(ast.unparse(tree).encode(), 9)", "ast.unparse(tree).encode()"),
    ],
)
def test_the_law_catches_what_is_sealed_badly(change):
    broken = mutant("minigrad_course.handout.sealed_source", change)
    with pytest.raises((AssertionError, zlib.error)):
        for answers in LESSONS_ANSWERS:
            seals(broken, answers.read_text(encoding="utf-8"), letters_and_edits(answers))


def test_a_lesson_without_questions_is_another_thing(tmp_path):
    with pytest.raises(ValueError, match="has no questions"):
        questions.questions_of(tmp_path)
