"""The grader's checks on real MPI: a right answer, a wrong one, and one whose ranks wait for each other."""

import json

import pytest

from tests.minigrad_course.grading.conftest import DOUBLE, TOTAL, toys  # noqa: F401

DEADLOCK = "def total(comm, x):\n    return comm.recv((comm.rank + 1) % comm.size)\n"
WRONG = TOTAL.replace("return x +", "return x * (1 + comm.rank) +")


@pytest.mark.parametrize(
    ("total", "score", "words"),
    [
        pytest.param(TOTAL, 100, "", marks=pytest.mark.thorough),
        pytest.param(WRONG, 40, "rank 1 has", marks=pytest.mark.thorough),
        (DEADLOCK, 40, "to receive from rank 0 (tag 0) at mine.py:2"),
    ],
    ids=["right", "wrong", "deadlock"],
)
def test_ranks_as_processes(total, score, words, processes, toys):  # noqa: F811
    (processes.folder / "mine.py").write_text(total + DOUBLE, encoding="utf-8")
    job = processes.minigrad(
        *("grade", "a1", "--folder", str(toys), "--transport", "mpi", "--submission", "mine.py"),
        *("--json", "report.json"),
    )
    assert job.status == (score < 100), job.out + job.err
    report = json.loads((processes.folder / "report.json").read_text(encoding="utf-8"))
    assert report["score"] == score and report["transport"] == "mpi", report
    assert words in report["tasks"][0]["message"], report
