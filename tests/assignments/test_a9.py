"""Assignment a9: each mistake costs what it should, and the report shows the crash that breaks it."""

from types import SimpleNamespace

import pytest
from minigrad_course.grading.counterexample import counterexample
from minigrad_course.grading.grade import SubmissionFile, grade

from tests.assignments.mistakes_of_a9 import A9, ALL, MISTAKES, TASKS
from tests.assignments.submissions import JUNK, costs, faults, submission, submission_text


@pytest.mark.parametrize("junk", JUNK, ids=repr)
def test_what_load_may_not_give_is_refused_in_words(junk):
    right = submission("solved_a9.py")
    junk_submission = SimpleNamespace(**{**vars(right), "load": lambda _: junk, "unseal": lambda _: junk})
    actual = faults(A9, junk_submission, few=ALL)
    assert set(actual) == ALL and not any("Error" in words for words in actual.values()), actual


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_costs_its_tasks_and_no_other(mistake):
    costs(A9, *MISTAKES[mistake])


def test_a_counterexample_shows_the_operations_and_what_was_left():
    words = counterexample(
        TASKS["kill"],
        submission("solved_a9.py", *MISTAKES["the old generation goes before the new one is there"][0]),
    )
    assert words is not None
    lines = [line.strip() for line in words.splitlines()]
    assert "save of step 10:" in lines and "left on the disk:" in lines
    assert any(line.endswith(". remove /head-9") for line in lines), words
    assert any("bytes, as written" in line for line in lines), words
    assert len(words) < 1500


IN_MEMORY = """
SEALED = set()


def seal(content):
    SEALED.add(data := content + b"#")
    return data


def unseal(data):
    return data[:-1] if data in SEALED else None
"""


CACHED = """
SEAL, LOAD, SEALED = seal, load, []


def seal(content):
    SEALED.append(content)
    return SEAL(content)


def load(disk):
    return LOAD(disk) if not SEALED else "what was sealed here is still there"
"""


def test_what_is_only_in_memory_does_not_survive(tmp_path):
    """Who loads is another process than who saved, also where one rank saved."""
    file = tmp_path / "submission.py"
    file.write_text(submission_text("solved_a9.py") + CACHED, encoding="utf-8")
    assert all(r.passed for r in grade(A9.only("save_and_load"), SubmissionFile.read(file)).results)
    file.write_text(submission_text("solved_a9.py") + IN_MEMORY, encoding="utf-8")
    results = {r.task.name: r for r in grade(A9.only("seal"), SubmissionFile.read(file)).results}
    assert not results["seal"].passed and "unseal gives None" in results["seal"].message
    file.write_text(submission_text("solved_a9.py") + "\nprint(seal, crc32)\n", encoding="utf-8")
    assert all(r.passed for r in grade(A9.only("seal"), SubmissionFile.read(file)).results)
