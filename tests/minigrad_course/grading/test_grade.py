"""Laws of lessons/minigrad_course/grading/grade.py, reports.py and command.py: points, seeds, reports in
every format, and what the command says to mistakes.
"""

import importlib
import io
import json
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

import hypothesis.strategies as st
import pytest
from hypothesis import given
from minigrad_course.grading import find_assignment
from minigrad_course.grading.grade import SubmissionFile, combine, grade
from minigrad_course.grading.judge import Request, verdict_writers
from minigrad_course.grading.reports import as_gradescope, as_json, as_junit, as_text, result_table
from minigrad_course.lesson import lessons
from rich.console import Console

from tests.bugs.mutant import mutant
from tests.minigrad_course.grading.gradescope_laws import is_gradescope

from .conftest import ANSWERS, DOUBLE, STARTER, TASKS, TOTAL, messages, scores

WRONG = TOTAL.replace("return x +", "return 2 * x +") + DOUBLE


# Points


def test_the_starter_is_told_what_is_not_written(judged):
    words = "1 ranks, 1 elements: not written yet (NotImplementedError: task 1) (line 3 of mine.py)"
    assert judged(STARTER, "total") == words


def test_the_librarys_answers_do_not_pass_as_a_submission(graded):
    report = graded(ANSWERS)
    assert report.score == 0 and "line 1 imports backends.comm.collectives; import what" in report.refused


def test_a_refusal_is_told_once_wherever_it_is_read(graded):
    report = graded("import os\n" + TOTAL + DOUBLE)
    assert report.refused.startswith("line 1 imports os; import what the starter imports, NumPy")
    screen = Console(width=300, record=True, file=io.StringIO())
    screen.print(result_table(report))
    assert screen.export_text().count(report.refused) == 1
    report_of_gradescope = as_gradescope(report)
    assert is_gradescope(report_of_gradescope) and report_of_gradescope["output"].endswith(report.refused)
    assert json.dumps(report_of_gradescope).count("imports os") == 1
    plain = as_json(report)
    assert plain["refused"] == report.refused and json.dumps(plain).count("imports os") == 1
    assert "audit hook" in plain["protections"]
    assert {case[0].get("message") for case in ElementTree.fromstring(as_junit(report))} == {report.refused}


def test_the_same_seed_is_the_same_report_and_another_seed_other_cases(graded):
    """Printing the cases shows which they were; ranks take the same turns, so their lines come in order."""
    text = TOTAL.replace("):", "):\n    print(comm.rank, x, flush=True)", 1)
    text = text.replace("return x +", "if len(x) == 3: 1 / 0\n    return x +")

    def of(seed):
        report = graded(text, "total", seed=seed)
        untimed_results = tuple(replace(r, seconds=0.0) for r in report.results)
        untimed = replace(report, seconds=0.0, results=untimed_results)
        return [as_text(untimed, kind) for kind in ("json", "junit", "gradescope")]

    first = of(1)
    assert first == of(1)
    assert json.loads(first[0])["tasks"][0]["output"] != json.loads(of(2)[0])["tasks"][0]["output"]


def test_a_check_that_lets_all_pass_is_found_out(graded, toys):
    """Then nobody gets points for it, and it is the grader that is blamed."""
    text = TASKS.replace("total=lambda comm, x: x)", "total=lambda comm, x: naive_allreduce(comm, x))")
    (toys / "a1_toy" / "tasks.py").write_text(text, encoding="utf-8")
    report = graded(TOTAL, "total")
    assert scores(report) == [0] and messages(report)[0].startswith("the grader: its own wrong answer")


def test_all_tasks_together_have_a_bound(graded):
    text = "import time\ntime.sleep(100)\n"
    report = graded(text, task_seconds=60, total_seconds=3)
    assert scores(report) == [0, 0] and "did not end in" in messages(report)[0]
    assert "took all the time" in messages(report)[1]


def test_the_file_that_is_named_is_the_file_that_is_graded(toys, tmp_path):
    """Not another of that name, in the folder or in this process; and as it was when it was read."""
    file = tmp_path / "elsewhere" / "submission.py"
    file.parent.mkdir()
    file.write_text(TOTAL + DOUBLE, encoding="utf-8")
    read = SubmissionFile.read(file)
    file.write_text("1 / 0", encoding="utf-8")
    report = grade(find_assignment("a1", toys), read, task_seconds=20)
    assert scores(report) == [60, 40] and report.score == 100 and messages(report) == ["", ""]
    assert SubmissionFile.read(file).digest != read.digest and len(read.digest) == 64


@pytest.mark.parametrize(
    ("ranks", "passed", "words"),
    [
        ([[("case", "c"), ("passed", "")]], True, ""),
        ([[("passed", "")], []], False, "status 0 before there was a verdict"),
        ([[("passed", ""), ("passed", "")]], False, "more than one verdict"),
        ([[("passed", "")], [("case", "c"), ("failed", "c: x")]], False, "c: x"),
        ([[("waited", "rank 0 waited")], [("failed", "c: is wrong")]], False, "c: is wrong"),
        ([[("case", "c"), ("waited", "0")], [("waited", "1")]], False, "c: no rank can go on\n  0\n  1"),
        ([[("case", "3 ranks")]], False, "3 ranks: the process ended"),
    ],
)
def test_one_verdict_is_made_of_what_all_ranks_say(ranks, passed, words):
    verdict, message = combine(ranks, 0, 60)
    assert verdict == passed and words in message


# Reports


WRONG_RESULTS = [  # what the specification does not allow
    {},
    {"score": "60"},
    {"score": True},
    {"tests": [{"name": "no score anywhere"}]},
    {"score": 1, "tests": [{"status": "ok"}]},
    {"score": 1, "tests": {"name": "not a list"}},
    {"score": 1, "visibility": "shown"},
    {"score": 1, "stdout_visibility": ["visible"]},
    {"score": 1, "output_format": "markdown"},
    {"score": 1, "tests": [{"number": 1}]},
    {"score": 1, "leaderboard": [{"name": "time", "value": 1, "order": "up"}]},
    {"score": 1, "seed": 3},
]


def what_a_judge_wrote_is_read(grade, texts):
    """Each text as it was written, in any thread: Python's parser fails in one now and then (gh-106905)."""
    request = Request("secret", "", "", "", "", "", 0, "threads", 1.0, 1, False)
    with TemporaryDirectory() as name, mock.patch("ast.parse", side_effect=SystemError("in a thread")):
        write, _ = verdict_writers(Path(name) / "verdict", request)
        for text in texts:
            write("case", text)
        assert grade.read_verdict(Path(name) / "verdict", "secret") == [("case", text) for text in texts]
        assert grade.read_verdict(Path(name) / "verdict", "another") == []


@given(st.lists(st.text(st.characters() | st.sampled_from("\udc80\n\r\u2028'\"\\ ")), max_size=3))
def test_what_a_judge_wrote_is_read(texts):
    what_a_judge_wrote_is_read(importlib.import_module(grade.__module__), texts)


def test_the_law_of_verdicts_catches_python_s_parser():
    wrong = mutant(grade.__module__, ("json.loads(text)", "__import__('ast').literal_eval(text)"))
    with pytest.raises(SystemError):
        what_a_judge_wrote_is_read(wrong, ["1 ranks"])


def test_the_schema_tells_what_gradescope_takes():
    assert is_gradescope({"tests": [{"score": 2.0, "max_score": 2, "tags": ["a"], "extra_data": {}}]})
    assert is_gradescope({"score": 44.0, "leaderboard": [{"name": "Stars", "value": "*****"}]})
    assert not any(is_gradescope(result) for result in WRONG_RESULTS)


def test_the_reports_say_the_same_in_every_format(graded):
    report = graded("print('here', chr(0))\n" + WRONG)
    assert messages(report) == ["1 ranks, 1 elements: rank 0 has 2 in element 0, not 1", ""]
    result = json.loads(as_text(report, "gradescope"))
    assert is_gradescope(result) and result["output_format"] == "text"  # it would be HTML otherwise
    assert result["score"] == sum(test["score"] for test in result["tests"]) == report.score == 40
    assert sum(test["max_score"] for test in result["tests"]) == 100
    assert [test["status"] for test in result["tests"]] == ["failed", "passed"]
    assert "seed" not in json.dumps(result) and report.submission.digest in result["output"]

    plain = as_json(report)
    assert (plain["score"], plain["max_score"], plain["sha256"]) == (40, 100, report.submission.digest)
    assert set(plain["tasks"][0]) == {
        *("name", "title", "score", "max_score", "passed", "part", "message", "output", "seconds")
    }
    suite = ElementTree.fromstring(as_junit(report))
    assert suite.tag == "testsuite" and (suite.get("tests"), suite.get("failures")) == ("2", "1")
    cases = suite.findall("testcase")
    assert [case.get("name") for case in cases] == ["total", "double"]
    assert [len(case.findall("failure")) for case in cases] == [1, 0]
    junit = cases[0][0].text or ""
    for text in (plain["tasks"][0]["message"], result["tests"][0]["output"], junit):
        assert "rank 0 has" in text
    assert "here" in junit and as_gradescope(report) == result


# The command


def test_the_command_grades_prints_and_writes(minigrad, tmp_path, toys):
    (tmp_path / "mine.py").write_text(WRONG, encoding="utf-8")
    common = ["grade", "a1", "--folder", str(toys)]
    files = ["--json", "r.json", "--gradescope", "results.json", "--junit", "r.xml"]
    status, out, _ = minigrad(*common, "--submission", "mine.py", "--seed", "3", *files)
    assert status == 1 and str(tmp_path / "mine.py") in out
    assert SubmissionFile.read(tmp_path / "mine.py").digest in out
    assert "a1_toy: 40 of 100 points" in out and "the sum over all ranks" in out and "rank 0 has" in out
    assert json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))["seed"] == 3
    assert json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))["score"] == 40
    assert ElementTree.parse(tmp_path / "r.xml").getroot().get("name") == "a1_toy"

    status, out, _ = minigrad(*common, "--answers")
    assert status == 0 and "100 of 100" in out and "answers.py" in out
    status, out, _ = minigrad(*common)
    assert status == 1 and "0 of 100" in out and "submission.py" in out and "not written yet" in out


def test_the_command_lists(minigrad, toys):
    for line in (["--list"], ["a1", "--list"], []):
        status, out, _ = minigrad("grade", "--folder", str(toys), *line)
        assert status == 0 and "a1_toy" in out and "double" in out and "60" in out


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (["a7"], "no assignment 'a7'; there are a1_toy"),
        (["a1", "--submission", "no.py"], "there is no file no.py; --submission takes the path"),
        (["a1", "--submission", "binary.py"], "save it as UTF-8"),
        (["a1", "--seed", "-1"], "'--seed': -1 is not in the range x>=0"),
        (["a1", "--transport", "smoke"], "unknown --transport 'smoke'; choose one of threads, mpi"),
        (["a1", "--json", "no/r.json"], "its folder must exist and be writable; name another with --json"),
        (["a1", "--answers", "--submission", "x.py"], "leave --submission out"),
        (["a1", "--folder", "nowhere"], "no assignment 'a1'; there are none"),
        (["--json", "r.json"], "--json reports what was graded: minigrad grade a1 submission.py --json FILE"),
        (["a1", "--json", "submission.py"], "--json would write a report over a program, submission.py"),
        (["a1", "--list", "--csv", "r.csv"], "--csv reports what was graded: minigrad grade a1 FOLDER"),
        (["--list", "--folder", "nowhere"], "there are no assignments in nowhere"),
    ],
)
def test_a_mistake_is_answered_in_one_line(line, words, minigrad, tmp_path, toys):
    (tmp_path / "binary.py").write_bytes(b"\xff\xfe")
    folder = [] if "--folder" in line else ["--folder", str(toys)]
    status, _, err = minigrad("grade", *line, *folder)
    assert status == (2 if "--seed" in line else 1)  # what the parser refuses is 2, as everywhere
    assert words in err and err.startswith("minigrad: ") and err.count("\n") == 1


def test_without_hypothesis_it_says_how_to_get_it():
    text = (
        "import sys\nsys.modules['hypothesis'] = None\nsys.argv = ['minigrad', 'grade', 'a1']\n"
        "from backends.__main__ import main\nmain()"
    )
    process = subprocess.run([sys.executable, "-c", text], capture_output=True, encoding="utf-8")
    assert process.returncode == 1
    assert "needs Hypothesis" in process.stderr and "pip install hypothesis" in process.stderr


# Lessons


def test_lessons_are_listed_as_their_docstrings_present_them(minigrad):
    status, out, _ = minigrad("lesson")
    assert status == 0
    for one in lessons.lessons():
        assert one.number in out and one.title and one.section and "\n" not in one.section
    assert "Data parallelism" in out


def test_a_lesson_runs_where_one_is(minigrad, tmp_path, monkeypatch):
    folder = tmp_path / "lessons" / "03_toy"
    folder.mkdir(parents=True)
    text = '"""Lesson 03. A toy: runs.\n\nLecture section: toys\nand more. Then.\n"""\nopen("ran", "w")\n'
    (folder / "lesson.py").write_text(text, encoding="utf-8")
    monkeypatch.setattr(lessons.lessons, "__defaults__", (tmp_path / "lessons",))
    (one,) = lessons.lessons()
    assert (one.number, one.title, one.section) == ("03", "A toy: runs", "toys and more")
    assert minigrad("lesson", "3")[0] == 0 and (tmp_path / "ran").exists()
    status, _, err = minigrad("lesson", "99")
    assert status == 1 and "no lesson '99'; there are 03" in err
    monkeypatch.setattr(lessons.lessons, "__defaults__", (tmp_path,))
    assert "install minigrad-course again" in minigrad("lesson")[2]


def test_the_starter_of_an_installation_is_graded_for_nobody(minigrad, monkeypatch, tmp_path):
    """In an empty folder the command asks for a file; in a copy of the course it grades the copy."""
    monkeypatch.setattr(lessons, "INSTALLED", True)
    status, out, err = minigrad("grade", "a3")
    assert status == 1 and not out and err.count("\n") == 1, err
    for words in ("assignments/a3_data_parallel/submission.py in this folder", "minigrad lesson --copy DIR"):
        assert words in err
    copy = tmp_path / "assignments" / "a3_data_parallel" / "submission.py"
    copy.parent.mkdir(parents=True)
    copy.write_text("import os\n", encoding="utf-8")
    status, out, _ = minigrad("grade", "a3")
    assert status == 1 and f"grading {copy}" in out and "line 1 imports os" in out
