"""Laws of lessons/minigrad_course/classroom/autograder.py, upload.py, wheel.py and command.py: the
autograder's zip grades an upload in Gradescope's folders; the classroom's files name every task.
"""

import json
import os
import re
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from zipfile import ZipFile

import pytest
from minigrad_course.classroom import autograder, upload, wheel
from minigrad_course.grading import find_assignment
from minigrad_course.grading.course import Course

from tests.bugs.mutant import mutant

from .conftest import DOUBLE, TOTAL
from .gradescope_laws import is_gradescope

A2 = find_assignment("a2")
SOLVED = Path(__file__).parents[2] / "assignments" / "solved_a2.py"


@pytest.fixture(scope="module")
def content(tmp_path_factory):
    """The zip for a2, unpacked."""
    folder = tmp_path_factory.mktemp("zip")
    autograder.write_gradescope(folder / "a2.zip", A2, None)
    with ZipFile(folder / "a2.zip") as archive:
        archive.extractall(folder / "source")
        modes = {entry.filename: entry.external_attr >> 16 for entry in archive.infolist()}
    return folder / "source", modes


def test_the_zip_has_two_programs_and_the_wheel(content):
    source, modes = content
    (name,) = (file.name for file in source.glob("*.whl"))
    assert set(modes) == {"setup.sh", "run_autograder", name}
    for program in autograder.PROGRAMS:
        assert modes[program] == 0o755
        assert subprocess.run(["bash", "-n", source / program], capture_output=True).stderr == b""


def test_the_wheel_is_one_that_pip_takes(content, tmp_path):
    """The RECORD has the digest of every file, and the files are those that are imported here."""
    (file,) = content[0].glob("*.whl")
    if find_spec("pip"):
        line = ["install", "--no-deps", "--no-index", "--target", str(tmp_path / "there"), str(file)]
        done = subprocess.run([sys.executable, "-m", "pip", *line], capture_output=True, encoding="utf-8")
        assert done.returncode == 0, done.stderr
    with ZipFile(file) as archive:
        names = archive.namelist()
        (record,) = (name for name in names if name.endswith(".dist-info/RECORD"))
        rows = [line.split(",") for line in archive.read(record).decode().splitlines()]
        assert {row[0] for row in rows} == set(names)
        for name, digest, size in rows:
            if name != record:
                data = archive.read(name)
                assert (wheel.digest(data), str(len(data))) == (digest, size)
        points = archive.read(record.replace("RECORD", "entry_points.txt")).decode()
        assert "minigrad_course.grading.command:grade" in points
        assert archive.read("minigrad_course/classroom/wheel.py") == Path(wheel.__file__).read_bytes()
    assert not any("__pycache__" in name or name.startswith("/") for name in names)


def test_the_same_files_make_the_same_zip(tmp_path, content):
    autograder.write_gradescope(tmp_path / "a2.zip", A2, None)
    assert (tmp_path / "a2.zip").read_bytes() == (content[0].parent / "a2.zip").read_bytes()


@pytest.fixture
def root(toys, tmp_path):
    """Gradescope's folders, with the zip for the toy, which is an assignment of one's own, and a course."""
    root = tmp_path / "autograder"
    for name in ("submission", "results", "venv/bin"):
        (root / name).mkdir(parents=True)
    course = tmp_path / "points.toml"
    course.write_text("seed = 4711\n[a1.points]\ndouble = 15\n", encoding="utf-8")
    toy = Course.read(course, toys).weighted(find_assignment("a1", toys))
    autograder.write_gradescope(root / "a1.zip", toy, course)
    with ZipFile(root / "a1.zip") as archive:
        archive.extractall(root / "source")
    (root / "source" / "run_autograder").rename(root / "run_autograder")
    (root / "venv" / "bin" / "python").write_text(
        f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n', encoding="utf-8"
    )
    (root / "venv" / "bin" / "python").chmod(0o755)
    return root


def test_an_upload_is_graded_in_gradescopes_folders(root):
    (root / "submission" / "my_answer.py").write_text(TOTAL + DOUBLE.replace("2 * x", "x"), encoding="utf-8")
    done = subprocess.run(["bash", root / "run_autograder"], cwd="/", capture_output=True, timeout=200)
    assert done.returncode == 0, done.stderr
    results = json.loads((root / "results" / "results.json").read_text(encoding="utf-8"))
    assert is_gradescope(results) and results["score"] == 60
    assert [test["max_score"] for test in results["tests"]] == [60, 15]
    assert "4711" not in json.dumps(results)


UPLOADS = {
    "nothing": ({}, "there are 0 Python files in the upload; upload one, submission.py"),
    "no Python file": ({"answer.txt": "x"}, "there are 0 Python files"),
    "two": ({"a.py": "", "b.py": ""}, "there are 2 Python files"),
    "two in folders": ({"a/submission.py": "", "b/submission.py": ""}, "2 files named submission.py"),
    "no text": ({"submission.py": "\udcff"}, "save it as UTF-8"),
}


@pytest.mark.parametrize("name", UPLOADS)
def test_an_upload_that_cannot_be_read_has_a_reason(name, root):
    files, words = UPLOADS[name]
    for file, text in files.items():
        path = root / "submission" / file
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(text.encode(errors="surrogateescape"))
    results = upload.grade_upload(root, "a1_toy")
    assert is_gradescope(results) and results["score"] == 0 and words in results["output"]


def names_one_file(module, folder):
    """The file submission.py, wherever it is, or the only one; what an archive program adds is none."""
    for name in ("helper.py", "code/submission.py", "__MACOSX/._submission.py"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(f"# {name}", encoding="utf-8")
    assert module.find_upload(folder).source == "# code/submission.py"
    (folder / "code" / "submission.py").unlink()
    assert module.find_upload(folder).source == "# helper.py"


def test_one_file_of_an_upload_is_graded(tmp_path):
    names_one_file(upload, tmp_path)
    changes = (("(file,) = named or files", "(file,) = files"), (' if not file.name.startswith(".")', ""))
    for number, change in enumerate(changes):
        (tmp_path / str(number)).mkdir()
        with pytest.raises((AssertionError, ValueError, TypeError)):
            names_one_file(mutant("minigrad_course.classroom.upload", change), tmp_path / str(number))


def follows_no_link(module, folder):
    (folder / "up").mkdir()
    (folder / "private.py").write_text("private = 1", encoding="utf-8")
    (folder / "up" / "submission.py").symlink_to(folder / "private.py")
    with pytest.raises(ValueError, match="submission.py is a link that leads out of its folder"):
        module.find_upload(folder / "up")


def test_no_link_is_followed_out_of_an_upload(tmp_path):
    follows_no_link(upload, tmp_path)
    (tmp_path / "0").mkdir()
    with pytest.raises(pytest.fail.Exception):
        broken = mutant("minigrad_course.classroom.upload", ("    check_inside(folder, file)\n", ""))
        follows_no_link(broken, tmp_path / "0")


# GitHub Classroom


def every_task_is_a_test(module, text, points):
    """Each command grades its task alone, with the points of the course."""
    tests = json.loads(text)["tests"]
    keys = {"name", "setup", "run", "input", "output", "comparison", "timeout", "points"}
    assert all(set(test) == keys and type(test["timeout"]) is int for test in tests)
    commands = [shlex.split(test["run"]) for test in tests]
    assert [command[-1] for command in commands] == [task.name for task in A2.tasks]
    assert all(command[:5] == ["minigrad", "grade", "a2", "submission.py", "--task"] for command in commands)
    assert [test["points"] for test in tests] == points


def test_classrooms_json_names_every_task():
    points = [task.points for task in A2.tasks]
    every_task_is_a_test(autograder, autograder.as_json(A2, "minigrad-course"), points)
    for change in (("--task {task.name}", "--task {short}"), ('"points": task.points', '"points": 1')):
        module = mutant("minigrad_course.classroom.autograder", change)
        with pytest.raises(AssertionError):
            every_task_is_a_test(module, module.as_json(A2, "minigrad-course"), points)


def test_classrooms_workflow_has_a_step_for_each_task():
    text = autograder.as_workflow(A2, "minigrad-course")
    ids = re.findall(r"- id: (.*)", text)
    assert len(ids) == len(A2.tasks) == text.count("command-grader@v1") and "$" not in text.replace("${{", "")
    assert re.findall(r"runners: (.*)", text) == [",".join(ids)]
    for id in ids:
        assert f"{id.upper()}_RESULTS: ${{{{ steps.{id}.outputs.result }}}}" in text
    assert [int(n) for n in re.findall("max-score: (.*)", text)] == [task.points for task in A2.tasks]
    yaml = pytest.importorskip("yaml")
    steps = yaml.safe_load(text)["jobs"]["autograding"]["steps"]
    tests = json.loads(autograder.as_json(A2, "minigrad-course"))["tests"]
    assert [step["with"]["command"] for step in steps if "id" in step] == [test["run"] for test in tests]


def installs_what_is_beside_it(module, folder, file_name, place):
    """The tests install a wheel that is beside the file, and that has no answer, and what they run grades."""
    wheel_file = module.write_classroom(folder / file_name, A2, None)
    text = (folder / file_name).read_text(encoding="utf-8")
    assert wheel_file.parent == folder and wheel_file.is_file()
    installed = set(re.findall(r"pip install -q '([^']+)'", text))
    assert installed == {f"./{place}/{wheel_file.name}"}, installed
    with ZipFile(wheel_file) as archive:
        names = {name.rpartition("/")[2] for name in archive.namelist()}
        assert not names & {"answers.py", "instructor.md"} and {"submission.py", "tasks.py"} <= names
        archive.extractall(folder / "library")


def test_a_classroom_installs_what_is_beside_its_workflow(tmp_path):
    installs_what_is_beside_it(autograder, tmp_path, "classroom.yml", ".github/workflows")


def test_what_a_classroom_installs_grades(tmp_path):
    installs_what_is_beside_it(autograder, tmp_path, "autograding.json", ".github/classroom")
    (tmp_path / "submission.py").write_bytes(SOLVED.read_bytes())
    tests = json.loads((tmp_path / "autograding.json").read_text(encoding="utf-8"))["tests"]
    program, *line = shlex.split(tests[2]["run"])
    assert program == "minigrad"
    done = subprocess.run(
        [sys.executable, "-P", "-m", "backends", *line],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "library")},
        capture_output=True,
        encoding="utf-8",
    )
    assert done.returncode == 0, done


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("write_wheel(file.parent, Path(name).resolve())", "write_wheel(file.parent, root)"),
        ('f"./{place}/{wheel.name}"', 'f"./{wheel.name}"'),
    ],
)
def test_the_law_of_a_classroom_catches(right, wrong, tmp_path):
    module = mutant("minigrad_course.classroom.autograder", (right, wrong))
    with pytest.raises(AssertionError):
        installs_what_is_beside_it(module, tmp_path, "autograding.json", ".github/classroom")


# The command


def test_the_command_writes_all_files(minigrad, tmp_path, toys):
    line = ["autograder", "a1", "--folder", str(toys), "--gradescope", "a1.zip", "--classroom"]
    status, out, _ = minigrad(*line, "autograding.json")
    assert status == 0 and "set the assignment's points to 100" in out
    (beside,) = tmp_path.glob("*.whl")
    assert f"autograding.json and {beside.name}: put both into .github/classroom/" in out
    assert "assignments/a1_toy/tasks.py" in ZipFile(tmp_path / "a1.zip").namelist()
    assert "--folder assignments --task total" in (tmp_path / "autograding.json").read_text(encoding="utf-8")
    beside.unlink()
    status, out, _ = minigrad(*line, "classroom.yml", "--requirement", "minigrad-course==0.1")
    assert status == 0 and "classroom.yml: put it into .github/workflows/" in out
    assert "install -q 'minigrad-course==0.1'" in (tmp_path / "classroom.yml").read_text(encoding="utf-8")
    assert not [*tmp_path.glob("*.whl")]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ([], "nothing is to be written; name a file with --gradescope or --classroom"),
        (["--classroom", "classroom.txt"], "--classroom writes autograding.json or classroom.yml"),
        (["--gradescope", "no/a2.zip"], "name another with --gradescope"),
        (["--gradescope", "a2.zip", "--course", "no.toml"], "there is no file no.toml; --course takes"),
    ],
)
def test_a_mistake_is_answered_in_one_line(line, words, minigrad):
    status, _, err = minigrad("autograder", "a2", *line)
    assert status == 1 and words in err and err.count("\n") == 1, err
