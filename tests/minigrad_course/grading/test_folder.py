"""Laws of lessons/minigrad_course/grading/folder.py and command.py: a folder of submissions has a line for
each whatever the others do, the task that most of them failed, and a reason for each that lost points.
"""

import csv
import io
import threading
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from minigrad_course.grading import Task, command, folder
from minigrad_course.grading.assignment import Assignment
from minigrad_course.grading.grade import Report, SubmissionFile, TaskResult

from tests.bugs.mutant import mutant

from .conftest import DOUBLE, STARTER, TOTAL

TASKS = tuple(Task(f"task_{i}", 10 * i, "", st.none(), lambda *_: None, None) for i in (1, 2, 3))
ASSIGNMENT = Assignment(Path("a1_toy"), TASKS)
FORMULAS = ("=1+1.py", "+1.py", "-1.py", "@sum.py")
UNREAD, REFUSED, WORDS = "no reason to grade it", "line 1 imports os", "=1 is wrong\nand more"
OTHER_WORDS = "it did not end"

# A class: for each submission its name, and which tasks it passed, or why there is no telling
OUTCOMES = st.tuples(*[st.booleans()] * len(TASKS)) | st.sampled_from([UNREAD, REFUSED])
NAMES = st.sampled_from(FORMULAS) | st.text("ab,\"'=\n", min_size=1, max_size=4)
CLASSES = st.lists(st.tuples(NAMES, OUTCOMES), max_size=9)


def entries(module, outcomes):
    for number, (name, outcome) in enumerate(outcomes):
        file = Path(name)
        if outcome == UNREAD:
            yield module.Entry(file, None, UNREAD)
            continue
        refused = REFUSED if outcome == REFUSED else ""
        passed = [one is True and not refused for one in outcome[: len(TASKS)]]
        texts = (WORDS, OTHER_WORDS, WORDS)
        results = tuple(map(TaskResult, TASKS, passed, texts))
        submission = SubmissionFile(file, "", f"digest {number}")
        report = Report(ASSIGNMENT, submission, 0, "threads", results, 0.0, refused)
        yield module.Entry(file, report, module.reason_of(report))


# The laws of the module


def table_holds_every_submission(module, outcomes):
    """A reader of CSV gets all numbers back, no number where there was no grading, and no formula."""
    stream = io.StringIO()
    writer = csv.writer(stream)
    writer.writerow(module.header(ASSIGNMENT))
    writer.writerows(entry.cells(ASSIGNMENT) for entry in entries(module, outcomes))
    rows = list(csv.DictReader(io.StringIO(stream.getvalue(), newline="")))
    assert len(rows) == len(outcomes)
    for number, (row, (name, outcome)) in enumerate(zip(rows, outcomes, strict=True)):
        scores = [10 * i * (outcome[i - 1] is True) for i in (1, 2, 3)]
        numbers = [] if outcome == UNREAD else [sum(scores), *scores]
        results = [row["points"], *(row[task.name] for task in TASKS)]
        assert results == [str(n) for n in numbers] or (results == [""] * 4 and outcome == UNREAD)
        assert row["sha256"] == ("" if outcome == UNREAD else f"digest {number}")
        lost = [f"task_{i}" for i in (1, 3) if outcome[i - 1] is False]
        parts = [f"{', '.join(lost)}: =1 is wrong"] * bool(lost) + ["task_2: it did not end"] * (
            outcome[1] is False
        )
        if outcome[0] is True:
            parts.reverse()  # the first task that lost points has the first reason
        assert row["reason"] == (outcome if isinstance(outcome, str) else "; ".join(parts))
        assert row["file"].removeprefix("'") == name.removeprefix("'")
        assert not row["file"].startswith(("=", "+", "-", "@"))


def summary_counts(module, outcomes):
    """The counts are those of a plain count: submissions that were run and did not pass a task."""
    lines = module.summary(ASSIGNMENT, list(entries(module, outcomes)))
    ran = [outcome for _, outcome in outcomes if not isinstance(outcome, str)]
    graded = sum(outcome != UNREAD for _, outcome in outcomes)
    assert f" {graded} of {len(outcomes)} submissions graded, {graded - len(ran)} of them refused" in lines[0]
    failed = [sum(not passed[i] for passed in ran) for i in range(len(TASKS))]
    for task, count in zip(TASKS, failed, strict=True):
        assert f"{task.name}: failed by {count} of {len(ran)}" in lines
    worst = [task.name for task, count in zip(TASKS, failed, strict=True) if count == max(failed)]
    said = [line.removeprefix("failed most: ") for line in lines if line.startswith("failed most: ")]
    assert said == ([" and ".join(worst)] if any(failed) else [])
    assert sum(line.startswith("not graded: ") for line in lines) == len(outcomes) - graded


def one_that_hangs_stops_no_other(module, count, jobs, patience=0.002, bound=60.0):
    """The first ends after all others; never are more than ``jobs`` graded, and the order is the files'.

    Each takes ``patience`` seconds, in which one too many has the time to begin. The first waits ``bound``
    seconds for another one.
    """
    files = [Path(f"{number}.py") for number in range(count)]
    others, lock, too_many = threading.Semaphore(0), threading.Lock(), threading.Event()
    running, most = 0, 0

    def grade_one(file):
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
            if most > jobs:
                too_many.set()
        if file is files[0]:
            assert all(others.acquire(timeout=bound) for _ in files[1:]), "another one was not graded"
        else:
            too_many.wait(patience)
        with lock:
            running -= 1
        if file is not files[0]:
            others.release()
        return module.Entry(file, None)

    assert [entry.file for entry in module.grade_files(files, jobs, grade_one)] == files
    assert most <= jobs


def every_file_has_an_entry(module, tmp_path):
    """What cannot be read, and what the grading itself cannot do, is an entry with a reason of one line."""
    (tmp_path / "binary.py").write_bytes(b"\xff\xfe")
    (tmp_path / "fine.py").write_text("x = 1\n", encoding="utf-8")
    for name in ("binary.py", "missing.py", "fine.py"):  # this assignment has no starter to grade by
        entry = module.grade_file(Assignment(tmp_path / "a9", TASKS), tmp_path / name)
        assert entry.report is None and entry.reason and "\n" not in entry.reason
    assert "FileNotFoundError" in entry.reason  # of the grading, not of the submission


def no_link_is_followed_out_of(module, tmp_path):
    """Neither by a name in the folder, nor by a folder's link; a link within it is a file like any other."""
    of_a_class, beside = tmp_path / "class", tmp_path / "beside"
    of_a_class.mkdir()
    beside.mkdir()
    (beside / "private.py").write_text("a word of somebody else, which is no Python\n", encoding="utf-8")
    (of_a_class / "fine.py").write_text("x = 1\n", encoding="utf-8")
    for name, target in (
        *(("absolute.py", beside / "private.py"), ("relative.py", Path("../beside/private.py"))),
        *(("through.py", of_a_class / "folder" / "private.py"), ("folder", beside)),
        *(
            ("dangling.py", beside / "absent.py"),
            ("round.py", Path("round.py")),
            ("inside.py", Path("fine.py")),
        ),
    ):
        (of_a_class / name).symlink_to(target)
    files = {file.name: file for file in module.find_submissions(of_a_class)}
    assert {*files} >= {"absolute.py", "relative.py", "through.py", "dangling.py", "inside.py", "fine.py"}
    for name in ("absolute.py", "relative.py", "through.py", "dangling.py"):
        entry = module.grade_file(Assignment(tmp_path / "a9", TASKS), files[name])
        assert entry.report is None and "a link that leads out of its folder" in entry.reason, entry
        assert "somebody else" not in entry.reason
    inside = module.grade_file(Assignment(tmp_path / "a9", TASKS), files["inside.py"])
    assert "leads out" not in inside.reason


def test_no_link_is_followed_out_of_a_class(tmp_path):
    no_link_is_followed_out_of(folder, tmp_path)


def test_the_law_of_links_catches_one_that_is_followed(tmp_path):
    wrong = mutant("minigrad_course.grading.folder", ("        check_inside(file.parent, file)\n", ""))
    with pytest.raises(AssertionError):
        no_link_is_followed_out_of(wrong, tmp_path)


@given(CLASSES)
def test_the_table_holds_every_submission(outcomes):
    table_holds_every_submission(folder, outcomes)


@given(CLASSES)
def test_the_summary_counts(outcomes):
    summary_counts(folder, outcomes)


@given(st.integers(1, 7), st.integers(2, 4))
@settings(deadline=None, max_examples=25)
def test_one_that_hangs_stops_no_other(count, jobs):
    one_that_hangs_stops_no_other(folder, count, jobs)


def test_every_file_has_an_entry(tmp_path):
    every_file_has_an_entry(folder, tmp_path)


CLASS = [("=1+1.py", UNREAD), ("a", REFUSED), ("b", REFUSED), ("c", (True, False, True)), ("d", (True,) * 3)]
BUGS = {
    "a formula is written as it is": (table_holds_every_submission, (CLASS,), ('f"\'{text}"', "text")),
    "0 points without grading": (table_holds_every_submission, (CLASS,), ('*[""]', '*["0"]')),
    "the reason of lost points is left out": (
        table_holds_every_submission,
        (CLASS,),
        ('or "; ".join(reasons)', 'or ""'),
    ),
    "a reason for its first task alone": (
        table_holds_every_submission,
        ([("e", (False, True, False))],),
        ("{', '.join(names)}", "{names[0]}"),
    ),
    "the reason of a refusal is left out": (
        table_holds_every_submission,
        (CLASS,),
        ("digest, literal(self.reason)]", 'digest, ""]'),
    ),
    "a refused one failed every task": (
        summary_counts,
        (CLASS,),
        (" is not None and not entry.report.refused]", " is not None]"),
    ),
    "the task that most passed": (summary_counts, (CLASS,), ("most = max(", "most = min(")),
    "one after the other": (
        one_that_hangs_stops_no_other,
        (4, 2, 0.0, 0.1),
        ("Executor(jobs)", "Executor(1)"),
    ),
    "all at a time": (one_that_hangs_stops_no_other, (5, 2, 2.0), ("Executor(jobs)", "Executor(99)")),
}


@pytest.mark.parametrize("bug", BUGS)
def test_the_laws_catch(bug):
    law, arguments, change = BUGS[bug]
    with pytest.raises(AssertionError):
        law(mutant("minigrad_course.grading.folder", change), *arguments)


def test_the_law_of_the_entries_catches_an_error_that_stops_the_rest(tmp_path):
    for kind in ("KeyError", "ValueError"):
        change = ("except Exception as error", f"except {kind} as error")
        with pytest.raises((ValueError, FileNotFoundError)):
            every_file_has_an_entry(mutant("minigrad_course.grading.folder", change), tmp_path)


# The command

HANGS = "import time\ndef double(x): time.sleep(99)\n"
TAKES_ALL = (  # prints what a verdict looks like, and takes the memory
    "def double(x):\n    held = []\n    print('passed', flush=True)\n"
    "    while True: held.append(bytearray(10**6))\n"
)


@pytest.mark.parametrize(
    ("right", "wrong", "refused"), [(2, 2, 2), pytest.param(12, 5, 10, marks=pytest.mark.thorough)]
)
def test_a_folder_of_submissions_in_one_command(right, wrong, refused, minigrad, toys, tmp_path):
    """One hangs, one is hostile, some are refused, and all others get the points that they earn."""
    with (toys / "a1_toy" / "tasks.py").open("a", encoding="utf-8") as tasks:
        tasks.write("TASKS = TASKS[1:]\n")  # that without ranks: it takes little time
    of_a_class = tmp_path / "class"
    of_a_class.mkdir()
    texts = {f"right_{i:02}.py": (DOUBLE, 40) for i in range(right)}
    texts |= {f"wrong_{i}.py": (f"def double(x):\n    return x + {i}\n", 0) for i in range(wrong)}
    texts |= {f"refused_{i:02}.py": ("import os\n" + DOUBLE, 0) for i in range(refused)}
    texts |= {"hangs.py": (HANGS, 0), "a_hostile.py": (TAKES_ALL, 0), "=1+1.py": (DOUBLE, 40)}
    texts |= {"crashes.py": (f"{DOUBLE}\n1 / 0\n", 0), "syntax.py": ("def double(x:\n", 0)}
    for name, (text, _) in texts.items():
        (of_a_class / name).write_text(text, encoding="utf-8")
    (of_a_class / "notes.txt").write_text("no submission", encoding="utf-8")
    line = ["grade", "a1", str(of_a_class), "--folder", str(toys), "--csv", "points.csv", "--seconds", "5"]
    status, out, _ = minigrad(*line)
    rows = list(csv.DictReader((tmp_path / "points.csv").open(newline="", encoding="utf-8")))
    assert [row["file"].removeprefix("'") for row in rows] == sorted(texts)
    for row in rows:
        name = row["file"].removeprefix("'")
        assert (row["points"], row["double"]) == (str(texts[name][1]),) * 2, row
        assert row["sha256"] == SubmissionFile.read(of_a_class / name).digest
        assert ("imports os" in row["reason"]) == name.startswith("refused"), row
        assert name != "crashes.py" or "ZeroDivisionError: division by zero (line 6" in row["reason"], row
        assert name != "syntax.py" or row["reason"].startswith("line 1 is not Python: "), row
        assert bool(row["reason"]) == (row["points"] == "0"), row
        assert name != "hangs.py" or "double: 1 ranks, 1 elements: did not end in 5 s" in row["reason"], row
    files = len(texts)
    refused += 1  # what is no Python
    assert status == 0 and f"{files} of {files} submissions graded, {refused} of them refused" in out
    assert f"double: failed by {wrong + 3} of {files - refused}" in out and "failed most: double" in out


def leads_to_the_fewest_points(command):
    """The command after a class grades one of the fewest points; a submission without a grade has none."""
    class_of = [("b", UNREAD), ("c", (True, True, False)), ("a", (True, False, False)), ("d", (True,) * 3)]
    all_entries = list(entries(folder, class_of))
    course = Path("own course.toml")
    line = "minigrad grade a1 a --course 'own course.toml'"
    assert command.after_class(ASSIGNMENT, all_entries, course).command.removesuffix(" --folder .") == line
    assert "--list" in command.after_class(ASSIGNMENT, all_entries[:1], None).command


def test_a_class_leads_to_the_fewest_points():
    leads_to_the_fewest_points(command)
    for change in (("min(graded)", "max(graded)"), ('["--course", str(course)]', "[]")):
        with pytest.raises(AssertionError):
            leads_to_the_fewest_points(mutant("minigrad_course.grading.command", change))


def test_the_status_says_that_one_was_not_graded(minigrad, toys, tmp_path):
    (tmp_path / "class").mkdir()
    (tmp_path / "class" / "binary.py").write_bytes(b"\xff\xfe")
    status, out, _ = minigrad("grade", "a1", "class", "--folder", str(toys), "--csv", "points.csv")
    assert status == 1 and "not graded: binary.py" in out
    assert (tmp_path / "points.csv").read_text(encoding="utf-8").splitlines()[1].startswith("binary.py,,,,,")


def test_a_file_as_the_second_argument_is_the_submission(minigrad, toys, tmp_path):
    (tmp_path / "mine.py").write_text(TOTAL + DOUBLE, encoding="utf-8")
    status, out, _ = minigrad("grade", "a1", "mine.py", "--folder", str(toys))
    assert status == 0 and str(tmp_path / "mine.py") in out


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (["empty"], "there is no .py file in empty"),
        (["mine.py", "--submission", "other.py"], "both mine.py and other.py are to be graded"),
        (["mine.py", "--csv", "points.csv"], "--csv reports a folder of submissions"),
        (["class", "--json", "r.json"], "--json reports one submission; of a folder, --csv"),
        (["class", "--csv", "no/points.csv"], "name another with --csv"),
        (["class", "--answers"], "--answers grades the library's own file"),
        (["absent"], "there is no file absent"),
    ],
)
def test_a_mistake_is_answered_in_one_line(line, words, minigrad, toys, tmp_path):
    for name in ("empty", "class"):
        (tmp_path / name).mkdir()
    (tmp_path / "mine.py").write_text(STARTER, encoding="utf-8")
    (tmp_path / "class" / "mine.py").write_text(STARTER, encoding="utf-8")
    status, _, err = minigrad("grade", "a1", *line, "--folder", str(toys))
    assert status == 1 and words in err and err.count("\n") == 1, err


def test_answers_that_a_handout_lacks_are_missed_in_one_line(minigrad, toys):
    (toys / "a1_toy" / "answers.py").unlink()
    status, _, err = minigrad("grade", "a1", "--answers", "--folder", str(toys))
    assert status == 1 and "the repository has it, and a handout does not" in err and err.count("\n") == 1


def test_an_ending_in_capitals_is_one_of_the_files(tmp_path):
    for name in ("ann.py", "BOB.PY", "notes.txt"):
        (tmp_path / name).touch()
    assert [file.name for file in folder.find_submissions(tmp_path)] == ["BOB.PY", "ann.py"]


def test_a_name_stays_on_its_line():
    assert folder.Entry(Path("evil\n100 points  zed.py"), None).name == "evil?100 points  zed.py"
